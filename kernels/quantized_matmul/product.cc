// hlo_dispatch.own.narrow_product
//
//   dst[m, n] = post_ops( bias[n] + sum over k of src[m, k] * weights[k, n] * scales[k / group, n] )
//
// Weight-only quantized small-batch matmul (GEMV for one row): it is bound by reading the weights from memory, so they
// are read once, in their own layout; s4 and s8 are dequantized in registers. Operands, attributes and results are
// those of onednn.matmul but for those types and the scales of groups, which come behind the weights where there are
// any (scales_type, scales_dims (groups, columns), scales_strides). Sums are in f32 and in an order that does not
// depend on how many threads there are.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/failure.h"
#include "common/family.h"
#include "common/halves.h"
#include "common/processor.h"
#include "common/rounding.h"
#include "quantized_matmul/arithmetic.h"
#include "quantized_matmul/halves.h"
#include "quantized_matmul/problem.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

// So many bytes of weights, some ten microseconds, are worth waking a thread for.
constexpr double kMinPerThread = 1 << 18;
// How many panels there are for each thread.
constexpr int64_t kPanelsPerThread = 1;
// Columns of a panel: a whole number of the cache's lines, and enough of them to be fetched ahead.
constexpr int64_t kColumnGrain = 64, kMinColumns = 256;

const Arithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

class QuantizedMatmul final : public Routine {
 public:
  QuantizedMatmul(const Provider& provider, const Attributes& attributes)
      : problem_(provider, attributes), arithmetic_(BestArithmetic()) {
    operands_ = problem_.operands();
    results_ = {problem_.result(), PlannedScratch(attributes)};
  }

  std::string implementation() const override {
    const char* const type = ByType("s4", "s8", "bf16", "f32");
    return std::string("narrow:") + arithmetic_.name + ":" + type + (problem_.scales.has_value() ? ":groups" : "") +
           (problem_.weights.has_contiguous_columns ? "" : ":rows");
  }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const WidenedMatrix source(problem_.source_array, problem_.source, buffers.operands[0]);
    const std::optional<GroupScales> scales = ReadGroupScales(buffers);
    std::vector<WidenedValues> others;
    std::vector<const float*> operands;
    const size_t ahead = scales.has_value() ? 3 : 2;
    for (size_t i = 0; i < problem_.epilogue.operands().size(); ++i) {
      others.emplace_back(problem_.epilogue.operands()[i], buffers.operands[i + ahead]);
      operands.push_back(others.back().begin());
    }
    const int64_t columns = problem_.weights.columns;
    // Buffer of the sums: the result, or a separate one if that is no row-major f32 matrix.
    RowsAndColumns sums = problem_.destination;
    auto* values = static_cast<float*>(buffers.results[0]);
    std::unique_ptr<float[]> separate_sums;
    if (!problem_.sums_in_place()) {
      sums.row_stride = columns;
      sums.column_stride = 1;
      separate_sums.reset(new float[static_cast<size_t>(sums.rows * columns)]);
      values = separate_sums.get();
    }
    const auto work = static_cast<double>(WeightBytes(problem_.weights.type, problem_.weights.depth * columns));
    const int64_t threads = parallel.ThreadsFor(work, kMinPerThread);
    const int64_t width = Width(threads);
    const int64_t panels = CeilOfRatio(columns, width);
    parallel.For(panels, threads == 1 ? panels : 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Tile tile{0, sums.rows, i * width, std::min(columns, (i + 1) * width)};
        Multiply(source, static_cast<const char*>(buffers.operands[1]), scales, values, sums.row_stride, tile);
        if (!problem_.epilogue.is_empty()) problem_.epilogue.Apply(values, sums, tile, operands);
        if (separate_sums != nullptr) {
          StoreRounded(values, tile, problem_.destination_array, problem_.destination, buffers.results[0]);
        }
      }
    });
  }

 private:
  // Scales of groups in place, or converted to f32 and row-major where the arithmetic needs that.
  struct GroupScales {
    std::optional<WidenedMatrix> copy;
    const float* first;
    int64_t distance, step;
  };

  std::optional<GroupScales> ReadGroupScales(const RoutineBuffers& buffers) const {
    if (!problem_.scales.has_value()) return std::nullopt;
    const auto& [array, matrix, group] = *problem_.scales;
    if (array.type == ElementType::kF32 && (matrix.is_by_row() || !problem_.weights.has_contiguous_columns)) {
      const void* first = array.Begin(const_cast<void*>(buffers.operands[2]));
      return GroupScales{std::nullopt, static_cast<const float*>(first), matrix.row_stride, matrix.column_stride};
    }
    GroupScales widened{WidenedMatrix(array, matrix, buffers.operands[2]), nullptr, 0, 1};
    widened.first = widened.copy->begin();
    widened.distance = widened.copy->row_stride();
    return widened;
  }

  template <typename T>
  T ByType(T s4, T s8, T bf16, T f32) const {
    switch (problem_.weights.type) {
      case WeightsType::kS4:
        return s4;
      case WeightsType::kS8:
        return s8;
      case WeightsType::kBF16:
        return bf16;
      case WeightsType::kF32:
        break;
    }
    return f32;
  }

  // Of a panel, in columns.
  int64_t Width(int64_t threads) const {
    const int64_t panels = threads == 1 ? 1 : threads * kPanelsPerThread;
    const int64_t shared = std::max(kMinColumns, CeilOfRatio(problem_.weights.columns, panels));
    return RoundUpTo(shared, kColumnGrain);
  }

  void Multiply(const WidenedMatrix& source, const char* buffer, const std::optional<GroupScales>& scales,
                float* values, int64_t distance, const Tile& tile) const {
    const Weights& weights = problem_.weights;
    const int64_t step = weights.has_contiguous_columns ? 1 : weights.distance;
    const int64_t columns = tile.column_end - tile.column_begin;
    const std::unique_ptr<float[]> scratch(new float[static_cast<size_t>(tile.row_end * columns)]);
    const Panel panel{source.begin(),
                      source.row_stride(),
                      tile.row_end,
                      weights.depth,
                      buffer + WeightBytes(weights.type, weights.offset + tile.column_begin * step),
                      weights.distance,
                      buffer + WeightBytes(weights.type, weights.elements),
                      scales.has_value() ? scales->first + tile.column_begin * scales->step : nullptr,
                      scales.has_value() ? scales->distance : 0,
                      scales.has_value() ? scales->step : 0,
                      scales.has_value() ? problem_.scales->group : weights.depth,
                      columns,
                      values + tile.column_begin,
                      distance,
                      scratch.get()};
    const Loops& loops =
        scales.has_value()
            ? ByType<const Loops&>(arithmetic_.scaled_s4, arithmetic_.scaled_s8, arithmetic_.bf16, arithmetic_.f32)
            : ByType<const Loops&>(arithmetic_.s4, arithmetic_.s8, arithmetic_.bf16, arithmetic_.f32);
    (weights.has_contiguous_columns ? loops.contiguous_columns : loops.contiguous_rows)(panel);
  }

  Problem problem_;
  const Arithmetic& arithmetic_;
};

const Family<QuantizedMatmul, kOwnEverywhere> family("narrow_product", {}, "", "onednn.sequence");

}  // namespace

}  // namespace hlo_dispatch::quantized_matmul
