#include "quantized_matmul/zero_points.h"

#include <numeric>

namespace hlo_dispatch::quantized_matmul {

ZeroPoints::ZeroPoints(const Problem& problem, const WidenedMatrix& source, const void* zeros)
    : zeros_(*problem.zeros) {
  if (zeros_.array.has_value()) values_.emplace(*zeros_.array, zeros);
  const int64_t group = problem.weights.depth / zeros_.groups;
  for (int64_t row = 0; row < problem.destination.rows; ++row) {
    const float* from = source.begin() + row * source.row_stride();
    for (int64_t i = 0; i < zeros_.groups; ++i, from += group) {
      sums_.push_back(static_cast<float>(std::accumulate(from, from + group, 0.0)));
    }
  }
}

void ZeroPoints::Subtract(const Tile& tile, const float* scales, int64_t scales_row_stride,
                          int64_t scales_column_stride, float* values, int64_t values_stride) const {
  const int64_t columns = tile.column_end - tile.column_begin;
  std::vector<float> scaled(static_cast<size_t>(columns));
  for (int64_t group = 0; group < zeros_.groups; ++group) {
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t column = tile.column_begin + i;
      float zero = zeros_.constant;
      if (values_.has_value()) zero += *zeros_.matrix.At(values_->begin(), group, column);
      if (scales != nullptr) zero *= scales[group * scales_row_stride + column * scales_column_stride];
      scaled[static_cast<size_t>(i)] = zero;
    }
    for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
      const float sum = sums_[static_cast<size_t>(row * zeros_.groups + group)];
      float* to = values + row * values_stride + tile.column_begin;
      for (int64_t i = 0; i < columns; ++i) to[i] -= sum * scaled[static_cast<size_t>(i)];
    }
  }
}

}  // namespace hlo_dispatch::quantized_matmul
