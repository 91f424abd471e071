#include "attention/task.h"

#include <limits>

#include "common/rounding.h"

namespace hlo_dispatch::attention {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// The largest buffer that a thread caches: heads of some thousand numbers need more.
constexpr int64_t kMaxCachedBytes = 8 << 20;

}  // namespace

Task::Task(const Shared& shared, int64_t batch, int64_t first_query, int64_t queries, KeyRange keys)
    : s_(shared),
      a_(shared.arithmetic),
      value_panels_(shared.problem.width(), a_),
      first_query_(first_query),
      queries_(queries),
      key_range_(keys),
      may_skip_(shared.problem.may_skip && shared.tiling.splits == 1),
      query_(shared.problem.query.At(shared.buffers.operands[0], batch)),
      key_(shared.problem.key.At(shared.buffers.operands[1], batch)),
      value_(shared.problem.value.At(shared.buffers.operands[2], batch)),
      others_(shared.problem.OthersAt(shared.buffers, batch)) {
  const Tiling& t = s_.tiling;
  const int64_t lanes = a_.lanes;
  const int64_t row_units = RoundUpTo(s_.units, lanes);
  score_stride_ = RoundUpTo(t.keys, lanes);
  int64_t total = 0;
  const auto place = [&](int64_t units) {
    const int64_t at = total;
    total += RoundUpTo(units, 16);
    return at;
  };
  const int64_t query = place(queries_ * row_units), packed_keys = place(score_stride_ * row_units),
                values = place((t.keys + 1) * value_panels_.padded()),
                fetched = place(t.keys * std::max(row_units, value_panels_.padded())),
                scores = place(t.tile_queries * score_stride_), sums = place(queries_ * value_panels_.padded()),
                numbers = place(3 * queries_);
  auto* all = reinterpret_cast<float*>(MemoryOf(4 * total));
  query_copy_ = all + query;
  keys_ = all + packed_keys;
  values_ = all + values;
  copied_rows_ = all + fetched;
  scores_ = all + scores;
  sums_ = all + sums;
  peaks_ = all + numbers;
  totals_ = peaks_ + queries_;
  factors_ = totals_ + queries_;
  std::fill(sums_, sums_ + queries_ * value_panels_.padded(), 0.0f);
  std::fill(peaks_, peaks_ + queries_, -kInfinity);
  std::fill(totals_, totals_ + queries_, 0.0f);
}

// Fresh memory is slow to write to (page faults), so each thread caches its buffer for the next call.
char* Task::MemoryOf(int64_t bytes) {
  static thread_local Memory cached;
  static thread_local int64_t cached_bytes = 0;
  const auto allocated = [bytes] {
    return Memory(static_cast<char*>(::operator new(static_cast<size_t>(bytes), std::align_val_t(64))));
  };
  if (bytes > kMaxCachedBytes) {
    large_ = allocated();
    return large_.get();
  }
  if (bytes > cached_bytes) {
    cached_bytes = 0;
    cached.reset();
    cached = allocated();
    cached_bytes = bytes;
  }
  return cached.get();
}

void Task::Run() {
  query_rows_ = ContiguousRows(BlockAt(query_, first_query_, 0), queries_, s_.problem.depth(), query_copy_);
  for (int64_t first = key_range_.begin; first < key_range_.end; first += s_.tiling.keys) {
    const int64_t last = std::min(key_range_.end, first + s_.tiling.keys);
    bool is_packed = false;
    ForTiles([&](int64_t row, int64_t rows) {
      const KeyRange visible = Visible(row, rows, first, last);
      if (visible.begin >= visible.end) return;
      if (!is_packed) PackPanels(first, last);
      is_packed = true;
      AttendTile(row, rows, first, last, visible);
    });
  }
  if (may_skip_) AttendHidden();
}

void Task::Finish(const Matrix& destination) const {
  for (int64_t r = 0; r < queries_; ++r) {
    const Matrix row = BlockAt(destination, first_query_ + r, 0);
    a_.put(sums_ + r * value_panels_.padded(), s_.problem.width(), 1.0f / totals_[r], const_cast<char*>(row.first),
           row.type, row.column_bytes);
  }
}

void Task::StorePartial(float* to) const {
  const int64_t width = s_.problem.width();
  for (int64_t r = 0; r < queries_; ++r, to += width + 2) {
    to[0] = peaks_[r];
    to[1] = totals_[r];
    std::copy_n(sums_ + r * value_panels_.padded(), width, to + 2);
  }
}

Rows Task::ContiguousRows(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch) const {
  const int64_t bytes = s_.pairs ? 2 : 4;
  const bool is_whole = columns * bytes % 4 == 0 && matrix.row_bytes % 4 == 0;
  const bool is_type = matrix.type == (s_.pairs ? ElementType::kBF16 : ElementType::kF32);
  if (is_type && is_whole && (matrix.column_bytes == bytes || columns == 1)) {
    return {matrix.first, matrix.row_bytes};
  }
  return CopiedRows(matrix, rows, columns, scratch, CeilOfRatio(columns * bytes, 4));
}

Rows Task::RowsInPlace(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch, bool whole) const {
  if (!whole || columns % a_.lanes == 0) {
    if (matrix.type == ElementType::kF32 && matrix.column_bytes == 4) return {matrix.first, matrix.row_bytes};
    if (matrix.type == ElementType::kBF16 && matrix.column_bytes == 2) {
      return {matrix.first, matrix.row_bytes, Units::kBF16};
    }
  }
  return CopiedRows(matrix, rows, columns, scratch, RoundUpTo(columns, a_.lanes));
}

Rows Task::CopiedRows(const Matrix& matrix, int64_t rows, int64_t columns, float* scratch, int64_t units) const {
  a_.fetch(s_.pairs, matrix, rows, columns, reinterpret_cast<char*>(scratch), 4 * units);
  return {reinterpret_cast<const char*>(scratch), 4 * units};
}

void Task::PackPanels(int64_t first, int64_t last) {
  const int64_t keys = last - first;
  if (s_.is_direct) {
    key_rows_ = RowsInPlace(BlockAt(key_, first, 0), keys, s_.problem.depth(), keys_, false);
    value_rows_ = RowsInPlace(BlockAt(value_, first, 0), keys, s_.problem.width(), values_, true);
    return;
  }
  const Rows key = ContiguousRows(BlockAt(key_, first, 0), keys, s_.problem.depth(), copied_rows_);
  const Panels panels(keys, a_);
  for (int64_t p = 0; p < panels.count(); ++p) {
    const int64_t begin = panels.Begin(p), end = std::min(keys, panels.Begin(p + 1));
    a_.pack_columns(key.first + begin * key.bytes, key.bytes, end - begin, s_.units, keys_ + begin * s_.units,
                    panels.Vectors(p) * a_.lanes);
  }
  const Rows value = ContiguousRows(BlockAt(value_, first, 0), keys, s_.problem.width(), copied_rows_);
  const int64_t value_units = s_.pairs ? CeilOfRatio(keys, 2) : keys;
  for (int64_t p = 0; p < value_panels_.count(); ++p) {
    const int64_t begin = value_panels_.Begin(p);
    const int64_t end = std::min(s_.problem.width(), value_panels_.Begin(p + 1));
    a_.pack_rows(s_.pairs, value.first + begin * (s_.pairs ? 2 : 4), value.bytes, keys, end - begin,
                 values_ + begin * value_units, value_panels_.Vectors(p) * a_.lanes);
  }
}

KeyRange Task::Visible(int64_t row, int64_t rows, int64_t first, int64_t last) const {
  if (!may_skip_) return {0, last - first};
  return VisibleKeys(s_.problem, others_, first_query_ + row, rows, {first, last}, a_.lanes);
}

void Task::AttendHidden() {
  if (Vanish(s_.problem, peaks_, queries_)) return;
  for (int64_t first = key_range_.begin; first < key_range_.end; first += s_.tiling.keys) {
    const int64_t last = std::min(key_range_.end, first + s_.tiling.keys);
    bool is_packed = false;
    ForTiles([&](int64_t row, int64_t rows) {
      const KeyRange visible = Visible(row, rows, first, last);
      if (visible.begin == 0 && visible.end == last - first) return;
      if (!is_packed) PackPanels(first, last);
      is_packed = true;
      if (visible.begin > 0) AttendTile(row, rows, first, last, {0, visible.begin});
      if (visible.end < last - first) AttendTile(row, rows, first, last, {visible.end, last - first});
    });
  }
}

void Task::AttendTile(int64_t row, int64_t rows, int64_t first, int64_t last, const KeyRange& range) {
  const Panels panels(last - first, a_);
  const auto* queries = reinterpret_cast<const float*>(query_rows_.first + row * query_rows_.bytes);
  if (s_.is_direct) {
    a_.dots(key_rows_.units, queries, query_rows_.bytes / 4, key_rows_.first + range.begin * key_rows_.bytes,
            key_rows_.bytes, scores_, score_stride_, rows, range.end - range.begin, s_.units, s_.first_scale);
  }
  for (int64_t p = panels.Of(range.begin); !s_.is_direct && p < panels.count() && panels.Begin(p) < range.end; ++p) {
    const int64_t begin = std::max(range.begin, panels.Begin(p)), end = std::min(range.end, panels.Begin(p + 1));
    a_.scores(s_.pairs, queries, query_rows_.bytes / 4, keys_ + panels.Begin(p) * s_.units + (begin - panels.Begin(p)),
              panels.Vectors(p) * a_.lanes, CeilOfRatio(end - begin, a_.lanes), scores_ + begin - range.begin,
              score_stride_, rows, s_.units, s_.first_scale);
  }
  const int64_t count = range.end - range.begin;
  for (size_t i = s_.first_step; i < s_.problem.steps.size(); ++i) {
    for (int64_t r = 0; r < rows; ++r) {
      Apply(s_.problem.steps[i], scores_ + r * score_stride_, first_query_ + row + r, first + range.begin, count);
    }
  }
  a_.weigh(s_.pairs, scores_, score_stride_, rows, count, peaks_ + row, totals_ + row, factors_ + row);
  const int64_t padded = value_panels_.padded();
  for (int64_t p = 0; p < value_panels_.count(); ++p) {
    const Rows values = ValuesOf(p, last - first);
    a_.accumulate(values.units, scores_, score_stride_,
                  values.first + (s_.pairs ? range.begin / 2 : range.begin) * values.bytes, values.bytes,
                  value_panels_.Vectors(p), sums_ + row * padded + value_panels_.Begin(p), padded, rows,
                  s_.pairs ? CeilOfRatio(count, 2) : count, factors_ + row);
  }
}

Rows Task::ValuesOf(int64_t panel, int64_t keys) const {
  const int64_t begin = value_panels_.Begin(panel);
  if (s_.is_direct) {
    return {value_rows_.first + begin * (value_rows_.units == Units::kBF16 ? 2 : 4), value_rows_.bytes,
            value_rows_.units};
  }
  const float* first = values_ + begin * (s_.pairs ? CeilOfRatio(keys, 2) : keys);
  return {reinterpret_cast<const char*>(first), 4 * value_panels_.Vectors(panel) * a_.lanes,
          s_.pairs ? Units::kPairs : Units::kF32};
}

void Task::Apply(const Step& step, float* scores, int64_t row, int64_t key, int64_t count) const {
  const int64_t query = s_.problem.is_one_query ? 0 : row;
  switch (step.kind) {
    case StepKind::kScale:
      return a_.scale(scores, count, step.value);
    case StepKind::kSoftcap:
      return a_.cap(scores, count, step.value);
    case StepKind::kAdd:
      return a_.add(scores, count, BlockAt(others_[step.operand], row, key));
    case StepKind::kSelect:
      return a_.select(scores, count, BlockAt(others_[step.operand], row, key), step.value);
    case StepKind::kCausal:
      return std::fill(scores + std::clamp<int64_t>(query + step.reach + 1 - key, 0, count), scores + count,
                       step.value);
    case StepKind::kWindow:
      return std::fill(scores, scores + std::clamp<int64_t>(query - step.reach + 1 - key, 0, count), step.value);
  }
}

}  // namespace hlo_dispatch::attention
