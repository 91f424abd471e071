#include "quantized_matmul/group_scales.h"

namespace hlo_dispatch::quantized_matmul {

GroupScales::GroupScales(const Problem& problem, const void* buffer, bool is_any_order) : group(problem.weights.depth) {
  if (!problem.scales.has_value()) return;
  const auto& [array, matrix, rows] = *problem.scales;
  group = rows;
  if (array.type == ElementType::kF32 && (matrix.is_by_row() || is_any_order)) {
    first = static_cast<const float*>(array.Begin(const_cast<void*>(buffer)));
    distance = matrix.row_stride;
    step = matrix.column_stride;
    return;
  }
  const WidenedMatrix& copy = copy_.emplace(array, matrix, buffer);
  first = copy.begin();
  distance = copy.row_stride();
  step = 1;
}

}  // namespace hlo_dispatch::quantized_matmul
