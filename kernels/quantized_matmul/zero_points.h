// Zero points of integer weights: x @ ((w - z) * s) = x @ (w * s) - (sums of x over each group) @ (z * s).
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_ZERO_POINTS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_ZERO_POINTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/epilogue.h"
#include "common/halves.h"
#include "quantized_matmul/halves.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

// Of one execution.
class ZeroPoints {
 public:
  // Args:
  //   source: of the product, in the order in which the weights are summed up.
  //   zeros: the operand; null where all weights have the same zero point.
  ZeroPoints(const Problem& problem, const WidenedMatrix& source, const void* zeros);

  // Subtracts their part from a tile of the sums.
  //
  // Args:
  //   scales: of the first column and group, and how far apart they are; null: there are none.
  //   values: the first element of all sums, which are row-major.
  void Subtract(const Tile& tile, const float* scales, int64_t scales_row_stride, int64_t scales_column_stride,
                float* values, int64_t values_stride) const;

 private:
  const Zeros& zeros_;
  std::optional<WidenedValues> values_;
  std::vector<float> sums_;  // (rows, groups)
};

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_ZERO_POINTS_H_
