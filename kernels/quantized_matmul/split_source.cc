#include "quantized_matmul/split_source.h"

#include <cstring>

#include "common/rounding.h"
#include "quantized_matmul/packed_layout.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

// Numbers with one scale at most: their sums are numbers of 32 bits.
constexpr int64_t kMostInGroup = 64;
// What is written behind the last number may be a vector.
constexpr int64_t kVector = 64;

// The largest divisor of a group of weights that is a multiple of the layout's steps.
int64_t GroupOf(const Problem& problem) {
  if (!problem.scales.has_value()) return kMostInGroup;
  int64_t group = kMostInGroup;
  while (problem.scales->group % group != 0) group -= kPackedRowGrain;
  return group;
}

}  // namespace

SplitSource::SplitSource(const SplitProducts& arithmetic, const Problem& problem, const WidenedMatrix& source) {
  const int64_t rows = problem.source.rows, depth = problem.source.columns, group = GroupOf(problem);
  rows_ = {depth,   group,  CeilOfRatio(depth, group), RoundUpTo(depth, kPackedRowGrain) + kVector, nullptr,
           nullptr, nullptr};
  const auto digits = static_cast<size_t>(rows * kDigits * rows_.stride);
  const auto groups = static_cast<size_t>(rows * rows_.groups);
  digits_.reset(new int8_t[digits]);
  scales_.reset(new float[groups]);
  sums_.reset(new int32_t[groups * kDigits]);
  rows_.digits = digits_.get();
  rows_.scales = scales_.get();
  rows_.sums = sums_.get();
  for (int64_t row = 0; row < rows && is_exact_; ++row) {
    is_exact_ = arithmetic.split(source.begin() + row * source.row_stride(), row, rows_);
  }
}

}  // namespace hlo_dispatch::quantized_matmul
