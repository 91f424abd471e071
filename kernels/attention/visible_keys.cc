#include "attention/visible_keys.h"

#include <algorithm>
#include <cstring>

#include "common/rounding.h"

namespace hlo_dispatch::attention {

namespace {

// e to the power of less is 0 in f32.
constexpr float kVanishing = 104.0f;

// From the first to the last key of the range that the mask shows to one of so many rows.
KeyRange UnmaskedRange(const Matrix& mask, int64_t rows, const KeyRange& range) {
  KeyRange shown{range.end, range.begin};
  const int64_t step = mask.column_bytes;
  for (int64_t r = 0; r < (mask.row_bytes == 0 ? 1 : rows); ++r) {
    const char* row = mask.first + r * mask.row_bytes;
    const auto are_hidden = [row](int64_t j) {
      uint64_t eight;
      std::memcpy(&eight, row + j, sizeof(eight));
      return eight == 0;
    };
    int64_t begin = range.begin, end = range.end;
    while (step == 1 && begin + 8 <= shown.begin && are_hidden(begin)) begin += 8;
    while (begin < shown.begin && row[begin * step] == 0) ++begin;
    while (step == 1 && end - 8 >= shown.end && are_hidden(end - 8)) end -= 8;
    while (end > shown.end && row[(end - 1) * step] == 0) --end;
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
    if (!step.may_skip || step.kind != StepKind::kSelect || visible.begin >= visible.end) continue;
    visible = UnmaskedRange(BlockAt(others[step.operand], query, keys.begin), queries, visible);
  }
  if (visible.begin >= visible.end) return {0, 0};
  return {visible.begin / lanes * lanes, std::min(count, RoundUpTo(visible.end, lanes))};
}

bool Vanish(const Problem& problem, const float* peaks, int64_t rows) {
  return std::all_of(peaks, peaks + rows, [&problem](float peak) { return peak > problem.hidden + kVanishing; });
}

}  // namespace hlo_dispatch::attention
