#include "attention/blocked.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "attention/tiling.h"
#include "common/processor.h"

namespace hlo_dispatch::attention {

namespace {

// e to the power of less is 0 in f32.
constexpr float kVanishing = 104.0f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// So many multiply-adds, some ten microseconds, are worth waking a thread for.
constexpr double kLeastPerThread = 1 << 19;

// Of a thread, kept for its next call: memory that is new is slow to write to.
class Memory {
 public:
  char* Of(int64_t bytes) {
    if (bytes > bytes_) {
      data_.reset();
      bytes_ = 0;
      data_.reset(static_cast<char*>(::operator new(static_cast<size_t>(bytes), std::align_val_t(64))));
      bytes_ = bytes;
    }
    return data_.get();
  }

 private:
  struct Delete {
    void operator()(char* data) const { ::operator delete(data, std::align_val_t(64)); }
  };
  std::unique_ptr<char, Delete> data_;
  int64_t bytes_ = 0;
};

Matrix From(const Matrix& matrix, int64_t row, int64_t column) {
  return {matrix.first + row * matrix.row_bytes + column * matrix.column_bytes, matrix.type, matrix.row_bytes,
          matrix.column_bytes};
}

// Rows in f32 or bf16 one behind another, whether they lie so in the operand or were copied.
struct Lines {
  const char* first;
  int64_t bytes;  // from one to the next
};

// What all tasks of one call share.
struct Shared {
  const Problem& problem;
  const Arithmetic& arithmetic;
  Tiling tiling;
  bool pairs;
  int64_t units;  // of a query or key
  float first_scale;
  size_t first_step;  // behind that scale
  const RoutineBuffers& buffers;
};

// A block of queries of one batch element against all keys, or those of one split.
class Task {
 public:
  Task(const Shared& shared, int64_t batch, int64_t first_query, int64_t queries, int64_t first_key, int64_t last_key)
      : s_(shared),
        a_(shared.arithmetic),
        panels_of_values_(shared.problem.width(), a_),
        first_query_(first_query),
        queries_(queries),
        first_key_(first_key),
        last_key_(last_key),
        may_skip_(shared.problem.may_skip && shared.tiling.splits == 1),
        query_(shared.problem.query.At(shared.buffers.operands[0], batch)),
        key_(shared.problem.key.At(shared.buffers.operands[1], batch)),
        value_(shared.problem.value.At(shared.buffers.operands[2], batch)) {
    for (size_t i = 0; i < s_.problem.others.size(); ++i) {
      others_.push_back(s_.problem.others[i].At(s_.buffers.operands[3 + i], batch));
    }
    const Tiling& t = s_.tiling;
    const int64_t lanes = a_.lanes;
    const int64_t row_units = Rounded(s_.units, lanes);
    score_stride_ = Rounded(t.keys, lanes);
    int64_t total = 0;
    const auto place = [&](int64_t units) {
      const int64_t at = total;
      total += Rounded(units, 16);
      return at;
    };
    const int64_t query = place(queries_ * row_units), keys = place(score_stride_ * row_units),
                  values = place((t.keys + 1) * panels_of_values_.padded()),
                  fetched = place(t.keys * std::max(row_units, panels_of_values_.padded())),
                  scores = place(t.at_once * score_stride_), sums = place(queries_ * panels_of_values_.padded()),
                  numbers = place(3 * queries_);
    static thread_local Memory memory;
    auto* all = reinterpret_cast<float*>(memory.Of(4 * total));
    query_room_ = all + query;
    keys_ = all + keys;
    values_ = all + values;
    fetched_ = all + fetched;
    scores_ = all + scores;
    sums_ = all + sums;
    peaks_ = all + numbers;
    totals_ = peaks_ + queries_;
    factors_ = totals_ + queries_;
    std::fill(sums_, sums_ + queries_ * panels_of_values_.padded(), 0.0f);
    std::fill(peaks_, peaks_ + queries_, -kInfinity);
    std::fill(totals_, totals_ + queries_, 0.0f);
  }

  void Run() {
    queries_lines_ = InLines(From(query_, first_query_, 0), queries_, s_.problem.depth(), query_room_);
    for (int64_t first = first_key_; first < last_key_; first += s_.tiling.keys) {
      const int64_t last = std::min(last_key_, first + s_.tiling.keys);
      bool is_packed = false;
      ForPieces([&](int64_t row, int64_t rows) {
        const Range seen = Seen(row, rows, first, last);
        if (seen.begin >= seen.end) return;
        if (!is_packed) Pack(first, last);
        is_packed = true;
        Take(row, rows, first, last, seen);
      });
    }
    if (may_skip_) TakeWhatMatters();
  }

  // The result's rows, into its place.
  void Finish(const Matrix& destination) const {
    for (int64_t r = 0; r < queries_; ++r) {
      const Matrix row = From(destination, first_query_ + r, 0);
      a_.put(sums_ + r * panels_of_values_.padded(), s_.problem.width(), 1.0f / totals_[r],
             const_cast<char*>(row.first), row.type, row.column_bytes);
    }
  }

  // Peak, total and sums of each row, for Joined().
  void PutAside(float* to) const {
    const int64_t width = s_.problem.width();
    for (int64_t r = 0; r < queries_; ++r, to += width + 2) {
      to[0] = peaks_[r];
      to[1] = totals_[r];
      std::copy_n(sums_ + r * panels_of_values_.padded(), width, to + 2);
    }
  }

 private:
  struct Range {
    int64_t begin, end;  // keys, counted from the block's first
  };

  template <typename Body>
  void ForPieces(const Body& body) const {
    for (int64_t row = 0; row < queries_; row += s_.tiling.at_once) {
      body(row, std::min(s_.tiling.at_once, queries_ - row));
    }
  }

  Lines InLines(const Matrix& matrix, int64_t rows, int64_t columns, float* room) const {
    const int64_t bytes = s_.pairs ? 2 : 4;
    const bool is_even = !s_.pairs || (columns % 2 == 0 && matrix.row_bytes % 4 == 0);
    const bool is_type = matrix.type == (s_.pairs ? Element::kBF16 : Element::kF32);
    if (is_type && is_even && (matrix.column_bytes == bytes || columns == 1)) return {matrix.first, matrix.row_bytes};
    const int64_t to_bytes = 4 * Divided(columns * bytes, 4);
    a_.fetch(s_.pairs, matrix, rows, columns, reinterpret_cast<char*>(room), to_bytes);
    return {reinterpret_cast<const char*>(room), to_bytes};
  }

  void Pack(int64_t first, int64_t last) {
    const int64_t keys = last - first;
    const Lines key = InLines(From(key_, first, 0), keys, s_.problem.depth(), fetched_);
    const Panels panels(keys, a_);
    for (int64_t p = 0; p < panels.count(); ++p) {
      const int64_t begin = panels.Begin(p), end = std::min(keys, panels.Begin(p + 1));
      a_.pack_columns(key.first + begin * key.bytes, key.bytes, end - begin, s_.units, keys_ + begin * s_.units,
                      panels.Vectors(p) * a_.lanes);
    }
    const Lines value = InLines(From(value_, first, 0), keys, s_.problem.width(), fetched_);
    const int64_t value_units = s_.pairs ? Divided(keys, 2) : keys;
    for (int64_t p = 0; p < panels_of_values_.count(); ++p) {
      const int64_t begin = panels_of_values_.Begin(p);
      const int64_t end = std::min(s_.problem.width(), panels_of_values_.Begin(p + 1));
      a_.pack_rows(s_.pairs, value.first + begin * (s_.pairs ? 2 : 4), value.bytes, keys, end - begin,
                   values_ + begin * value_units, panels_of_values_.Vectors(p) * a_.lanes);
    }
  }

  // Keys of the block that some of these queries may see by causal steps and windows, in whole panels.
  Range Seen(int64_t row, int64_t rows, int64_t first, int64_t last) const {
    Range seen{0, last - first};
    if (!may_skip_) return seen;
    const int64_t query = first_query_ + row;
    for (const Step& step : s_.problem.steps) {
      if (step.kind == StepKind::kCausal) seen.end = std::min(seen.end, query + rows + step.reach - first);
      if (step.kind == StepKind::kWindow) seen.begin = std::max(seen.begin, query - step.reach + 1 - first);
    }
    if (seen.begin >= seen.end) return {0, 0};
    const Panels panels(last - first, a_);
    return {panels.Begin(panels.Of(seen.begin)), std::min(last - first, panels.Begin(panels.Of(seen.end - 1) + 1))};
  }

  // Keys that causal steps and windows hide are left out where that changes nothing: their weights would vanish beside
  // the others', and 0 times their values is 0.
  void TakeWhatMatters() {
    bool vanishes = true;
    for (int64_t r = 0; r < queries_; ++r) vanishes = vanishes && peaks_[r] > s_.problem.hidden + kVanishing;
    for (int64_t first = first_key_; first < last_key_; first += s_.tiling.keys) {
      const int64_t last = std::min(last_key_, first + s_.tiling.keys);
      bool skips = false;
      ForPieces([&](int64_t row, int64_t rows) {
        const Range seen = Seen(row, rows, first, last);
        skips = skips || seen.begin > 0 || seen.end < last - first;
      });
      if (!skips) continue;
      if (vanishes && a_.is_finite(From(value_, first, 0), last - first, s_.problem.width())) continue;
      Pack(first, last);
      ForPieces([&](int64_t row, int64_t rows) {
        const Range seen = Seen(row, rows, first, last);
        if (seen.begin > 0) Take(row, rows, first, last, {0, seen.begin});
        if (seen.end < last - first) Take(row, rows, first, last, {seen.end, last - first});
      });
    }
  }

  // Some queries against some keys of the block that is packed: whole panels.
  void Take(int64_t row, int64_t rows, int64_t first, int64_t last, const Range& range) {
    const Panels panels(last - first, a_);
    const auto* queries = reinterpret_cast<const float*>(queries_lines_.first + row * queries_lines_.bytes);
    for (int64_t p = panels.Of(range.begin); p < panels.count() && panels.Begin(p) < range.end; ++p) {
      const int64_t width = panels.Vectors(p) * a_.lanes;
      a_.scores(s_.pairs, queries, queries_lines_.bytes / 4, keys_ + panels.Begin(p) * s_.units, width,
                panels.Vectors(p), scores_ + panels.Begin(p) - range.begin, score_stride_, rows, s_.units,
                s_.first_scale);
    }
    const int64_t count = range.end - range.begin;
    for (int64_t r = 0; r < rows; ++r) {
      float* scores = scores_ + r * score_stride_;
      for (size_t i = s_.first_step; i < s_.problem.steps.size(); ++i) {
        Apply(s_.problem.steps[i], scores, first_query_ + row + r, first + range.begin, count);
      }
      a_.weigh(s_.pairs, scores, count, peaks_ + row + r, totals_ + row + r, factors_ + row + r);
    }
    const int64_t all_units = s_.pairs ? Divided(last - first, 2) : last - first;
    const int64_t before = s_.pairs ? range.begin / 2 : range.begin;
    const int64_t padded = panels_of_values_.padded();
    for (int64_t p = 0; p < panels_of_values_.count(); ++p) {
      const int64_t begin = panels_of_values_.Begin(p), width = panels_of_values_.Vectors(p) * a_.lanes;
      a_.accumulate(s_.pairs, scores_, score_stride_, values_ + begin * all_units + before * width, width,
                    panels_of_values_.Vectors(p), sums_ + row * padded + begin, padded, rows,
                    s_.pairs ? Divided(count, 2) : count, factors_ + row);
    }
  }

  void Apply(const Step& step, float* scores, int64_t query, int64_t key, int64_t count) const {
    switch (step.kind) {
      case StepKind::kScale:
        return a_.scale(scores, count, step.value);
      case StepKind::kSoftcap:
        return a_.cap(scores, count, step.value);
      case StepKind::kAdd:
        return a_.add(scores, count, From(others_[step.operand], query, key));
      case StepKind::kSelect:
        return a_.select(scores, count, From(others_[step.operand], query, key), step.value);
      case StepKind::kCausal:
        return std::fill(scores + std::clamp<int64_t>(query + step.reach + 1 - key, 0, count), scores + count,
                         step.value);
      case StepKind::kWindow:
        return std::fill(scores, scores + std::clamp<int64_t>(query - step.reach + 1 - key, 0, count), step.value);
    }
  }

  const Shared& s_;
  const Arithmetic& a_;
  Panels panels_of_values_;
  int64_t first_query_, queries_, first_key_, last_key_;
  bool may_skip_;
  Matrix query_, key_, value_;
  std::vector<Matrix> others_;
  Lines queries_lines_{};
  int64_t score_stride_;
  float *query_room_, *keys_, *values_, *fetched_, *scores_, *sums_, *peaks_, *totals_, *factors_;
};

// What the splits of one row have found, as one row of the result.
void Join(const Shared& s, const float* parts, int64_t distance, const Matrix& destination, int64_t row,
          std::vector<float>& sums) {
  const int64_t width = s.problem.width();
  float peak = -kInfinity, total = 0;
  for (int64_t i = 0; i < s.tiling.splits; ++i) peak = std::max(peak, parts[i * distance]);
  std::fill(sums.begin(), sums.end(), 0.0f);
  for (int64_t i = 0; i < s.tiling.splits; ++i) {
    const float* part = parts + i * distance;
    const float factor = part[0] == peak ? 1.0f : std::exp(part[0] - peak);
    total += factor * part[1];
    for (int64_t c = 0; c < width; ++c) sums[static_cast<size_t>(c)] += factor * part[2 + c];
  }
  const Matrix to = From(destination, row, 0);
  s.arithmetic.put(sums.data(), width, 1.0f / total, const_cast<char*>(to.first), to.type, to.column_bytes);
}

bool IsCausal(const Problem& problem) {
  return problem.may_skip && std::any_of(problem.steps.begin(), problem.steps.end(),
                                         [](const Step& step) { return step.kind == StepKind::kCausal; });
}

}  // namespace

const Arithmetic& BestArithmetic() {
  if (HasAvx512Bf16()) return kAvx512Bf16Arithmetic;
  if (HasAvx512()) return kAvx512Arithmetic;
  return HasAvx2() ? kAvx2Arithmetic : kPlainArithmetic;
}

bool TakesPairs(const Problem& problem, const Arithmetic& arithmetic) {
  return arithmetic.has_pairs && problem.query.type == Element::kBF16 && problem.key.type == Element::kBF16 &&
         problem.value.type == Element::kBF16;
}

void Attend(const Problem& problem, const Arithmetic& arithmetic, const RoutineBuffers& buffers,
            const Parallel& parallel) {
  const double work = static_cast<double>(problem.batch) * static_cast<double>(problem.queries()) *
                      static_cast<double>(problem.keys()) * static_cast<double>(problem.depth() + problem.width());
  const auto threads =
      static_cast<int64_t>(std::clamp(work / kLeastPerThread, 1.0, static_cast<double>(parallel.threads())));
  const bool pairs = TakesPairs(problem, arithmetic);
  const bool scales_first = !problem.steps.empty() && problem.steps.front().kind == StepKind::kScale;
  const Shared shared{problem,
                      arithmetic,
                      TilingOf(problem, arithmetic, threads),
                      pairs,
                      pairs ? Divided(problem.depth(), 2) : problem.depth(),
                      scales_first ? problem.steps.front().value : 1.0f,
                      scales_first ? size_t{1} : size_t{0},
                      buffers};
  const Tiling& tiling = shared.tiling;
  const int64_t blocks = problem.batch * tiling.tasks_per_batch;
  const int64_t row_floats = problem.width() + 2;
  const int64_t rows = problem.batch * problem.queries();
  std::vector<float> parts(tiling.splits > 1 ? static_cast<size_t>(tiling.splits * rows * row_floats) : 0);
  // The long ones first, so that no thread is left with one at the end.
  const bool from_behind = IsCausal(problem);
  const int64_t count = blocks * tiling.splits;
  parallel.For(count, threads == 1 ? count : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t split = i % tiling.splits, block = i / tiling.splits;
      const int64_t batch = from_behind ? block % problem.batch : block / tiling.tasks_per_batch;
      const int64_t number =
          from_behind ? tiling.tasks_per_batch - 1 - block / problem.batch : block % tiling.tasks_per_batch;
      const int64_t first = number * tiling.queries, queries = std::min(tiling.queries, problem.queries() - first);
      const int64_t first_key = split * tiling.keys_per_split;
      Task task(shared, batch, first, queries, first_key, std::min(problem.keys(), first_key + tiling.keys_per_split));
      task.Run();
      if (tiling.splits == 1) {
        task.Finish(problem.destination.At(buffers.results[0], batch));
      } else {
        task.PutAside(parts.data() + (split * rows + batch * problem.queries() + first) * row_floats);
      }
    }
  });
  if (tiling.splits == 1) return;
  std::vector<float> sums(static_cast<size_t>(problem.width()));
  for (int64_t row = 0; row < rows; ++row) {
    Join(shared, parts.data() + row * row_floats, rows * row_floats,
         problem.destination.At(buffers.results[0], row / problem.queries()), row % problem.queries(), sums);
  }
}

}  // namespace hlo_dispatch::attention
