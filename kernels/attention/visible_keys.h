// Visible keys of queries: those that causal steps, windows, masks and addends do not hide from all of them.
//
// The others are left out where their weights vanish beside those of the visible ones: what their values are, 0 times
// infinity included, is not seen then.
#ifndef HLO_DISPATCH_ATTENTION_VISIBLE_KEYS_H_
#define HLO_DISPATCH_ATTENTION_VISIBLE_KEYS_H_

#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace hlo_dispatch::attention {

struct KeyRange {
  int64_t begin, end;
};

// From the first to the last of these keys that one of the queries may see, in whole vectors, counted from keys.begin.
//
// Args:
//   others: the steps' operands in the queries' batch element.
KeyRange VisibleKeys(const Problem& problem, const std::vector<Matrix>& others, int64_t query, int64_t queries,
                     const KeyRange& keys, int64_t lanes);

// Whether the weights of hidden keys are 0 in f32 in all rows, by the rows' largest scores.
bool Vanish(const Problem& problem, const float* peaks, int64_t rows);

}  // namespace hlo_dispatch::attention

#endif  // HLO_DISPATCH_ATTENTION_VISIBLE_KEYS_H_
