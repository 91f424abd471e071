#include "attention/visible_keys.h"

#include <algorithm>
#include <cstring>

#include "common/halves.h"
#include "common/rounding.h"

namespace hlo_dispatch::attention {

namespace {

// e to the power of less is 0 in f32.
constexpr float kVanishing = 104.0f;
// Keys that are looked at together: of a mask a line of the cache, then fewer, down to the first one that is shown.
constexpr int64_t kLine = 64, kWord = 8;
constexpr int64_t kStepsOfKeys[] = {kLine, kWord, 1};

bool IsZeroLine(const char* first) {
  typedef uint64_t Vector __attribute__((vector_size(16)));
  Vector vectors[4];
  static_assert(sizeof(vectors) == kLine);
  std::memcpy(vectors, first, sizeof(vectors));
  const Vector any = (vectors[0] | vectors[1]) | (vectors[2] | vectors[3]);
  return (any[0] | any[1]) == 0;
}

// Whether a mask is false in all of these elements, or all of these addends absorb every score.
bool AreHidden(const Matrix& operand, const char* first, int64_t count) {
  const int64_t step = operand.column_bytes;
  bool are = true;
  switch (operand.type) {
    case ElementType::kPred:
      if (step == 1 && count == kLine) return IsZeroLine(first);
      if (step == 1 && count == kWord) {
        uint64_t word;
        static_assert(sizeof(word) == kWord);
        std::memcpy(&word, first, sizeof(word));
        return word == 0;
      }
      for (int64_t j = 0; j < count; ++j) are &= first[j * step] == 0;
      return are;
    case ElementType::kF32:
      for (int64_t j = 0; j < count; ++j) {
        float addend;
        std::memcpy(&addend, first + j * step, sizeof(addend));
        are &= addend <= kAbsorbing;
      }
      return are;
    default:
      for (int64_t j = 0; j < count; ++j) are &= WidenedNumber(first + j * step, operand.type, 0) <= kAbsorbing;
      return are;
  }
}

// From the first to the last key of the range that a step with this operand shows to one of so many rows.
KeyRange ShownRange(const Matrix& operand, int64_t rows, const KeyRange& range) {
  KeyRange shown{range.end, range.begin};
  for (int64_t r = 0; r < (operand.row_bytes == 0 ? 1 : rows); ++r) {
    const char* row = operand.first + r * operand.row_bytes;
    const auto are_hidden = [&](int64_t key, int64_t count) {
      return AreHidden(operand, row + key * operand.column_bytes, count);
    };
    int64_t begin = range.begin, end = range.end;
    for (const int64_t step : kStepsOfKeys) {
      while (begin + step <= shown.begin && are_hidden(begin, step)) begin += step;
    }
    if (begin == range.end) continue;
    const int64_t least = std::max(begin, shown.end);
    for (const int64_t step : kStepsOfKeys) {
      while (end - step >= least && are_hidden(end - step, step)) end -= step;
    }
    shown = {std::min(shown.begin, begin), std::max(shown.end, end)};
  }
  return shown;
}

}  // namespace

KeyRange VisibleKeys(const Problem& problem, const std::vector<Matrix>& others, int64_t query, int64_t queries,
                     const KeyRange& keys, int64_t lanes) {
  const int64_t count = keys.end - keys.begin;
  const int64_t position = problem.is_one_query ? 0 : query;
  const int64_t last_position = problem.is_one_query ? 0 : query + queries - 1;
  KeyRange visible{0, count};
  for (const Step& step : problem.steps) {
    if (!step.may_skip) continue;
    if (step.kind == StepKind::kCausal) {
      visible.end = std::min(visible.end, last_position + 1 + step.reach - keys.begin);
    }
    if (step.kind == StepKind::kWindow) {
      visible.begin = std::max(visible.begin, position - step.reach + 1 - keys.begin);
    }
  }
  for (const Step& step : problem.steps) {
    const bool has_operand = step.kind == StepKind::kSelect || step.kind == StepKind::kAdd;
    if (!step.may_skip || !has_operand || visible.begin >= visible.end) continue;
    visible = ShownRange(BlockAt(others[step.operand], query, keys.begin), queries, visible);
  }
  if (visible.begin >= visible.end) return {0, 0};
  return {visible.begin / lanes * lanes, std::min(count, RoundUpTo(visible.end, lanes))};
}

bool Vanish(const Problem& problem, const float* peaks, int64_t rows) {
  return std::all_of(peaks, peaks + rows, [&problem](float peak) { return peak > problem.hidden + kVanishing; });
}

}  // namespace hlo_dispatch::attention
