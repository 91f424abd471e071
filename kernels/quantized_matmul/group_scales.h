// Scales of groups of a quantized matmul's weights, in one execution.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_GROUP_SCALES_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_GROUP_SCALES_H_

#include <cstdint>
#include <optional>

#include "quantized_matmul/halves.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

// In place, or converted to f32 and row-major where the arithmetic needs that. Without any there is one group, and no
// first one.
struct GroupScales {
  // Args:
  //   is_any_order: whether the arithmetic reads them in other orders than by row.
  GroupScales(const Problem& problem, const void* buffer, bool is_any_order);
  GroupScales(const GroupScales&) = delete;
  GroupScales& operator=(const GroupScales&) = delete;

  const float* At(int64_t row, int64_t column) const {
    return first == nullptr ? nullptr : first + row / group * distance + column * step;
  }

  int64_t group;  // rows of weights
  const float* first = nullptr;
  int64_t distance = 0, step = 0;  // from group to group, and from column to column

 private:
  std::optional<WidenedMatrix> copy_;
};

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_GROUP_SCALES_H_
