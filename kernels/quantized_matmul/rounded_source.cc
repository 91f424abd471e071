#include "quantized_matmul/rounded_source.h"

#include <algorithm>

#include "common/halves.h"
#include "common/rounding.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

// So many numbers, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 15;

}  // namespace

RoundedSource::RoundedSource(const IntegerArithmetic& arithmetic, const Problem& problem, const void* buffer,
                             const Parallel& parallel)
    : rows_{problem.source.columns,
            problem.source_group,
            problem.source.columns / problem.source_group,
            CeilOfRatio(problem.source_group, kNumbersPerStep),
            nullptr,
            nullptr,
            nullptr} {
  const StridedArray& array = problem.source_array;
  const RowsAndColumns& matrix = problem.source;
  const int64_t blocks = CeilOfRatio(matrix.rows, arithmetic.rows), depth = matrix.columns;
  const auto scales = static_cast<size_t>(blocks * rows_.groups * arithmetic.rows);
  numbers_.reset(new int8_t[scales * static_cast<size_t>(rows_.steps * kNumbersPerStep)]);
  scales_.reset(new float[scales]);
  sums_.reset(new int32_t[scales]);
  rows_.numbers = numbers_.get();
  rows_.scales = scales_.get();
  rows_.sums = sums_.get();
  const void* const first = array.Begin(const_cast<void*>(buffer));
  const bool is_read_in_place = array.type == ElementType::kF32 && matrix.is_by_row();
  const int64_t threads = parallel.ThreadsFor(static_cast<double>(matrix.rows * depth), kMinPerThread);
  parallel.For(blocks, CeilOfRatio(blocks, threads), [&](int64_t begin, int64_t end) {
    const std::unique_ptr<float[]> wide(is_read_in_place ? nullptr
                                                         : new float[static_cast<size_t>(arithmetic.rows * depth)]);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = block * arithmetic.rows, rows = std::min(arithmetic.rows, matrix.rows - row);
      if (is_read_in_place) {
        const float* const from = static_cast<const float*>(first) + row * matrix.row_stride;
        arithmetic.round(from, matrix.row_stride, rows, block, rows_);
        continue;
      }
      for (int64_t i = 0; i < rows; ++i) {
        WidenNumbers(first, array.type, (row + i) * matrix.row_stride, matrix.column_stride, depth,
                     wide.get() + i * depth);
      }
      arithmetic.round(wide.get(), depth, rows, block, rows_);
    }
  });
}

}  // namespace hlo_dispatch::quantized_matmul
