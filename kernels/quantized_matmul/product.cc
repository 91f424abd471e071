// hlo_dispatch.own.narrow_product
//
//   dst[m, n] = post_ops( bias[n] + sum over k of src[m, k] * (weights[k, n] - zeros[k / group, n]) *
//                                           scales[k / group, n] )
//
// Zero points lie as scales do, behind them (zeros_type, zeros_dims, zeros_strides), or are one number (weights_zero).
//
// Weight-only quantized matmul. With few rows (GEMV for one) it is bound by reading the weights from memory, so they
// are read once, in their own layout; s4 and s8 are dequantized in registers. With more rows integers are widened in
// tiles, to bf16 where the source is bf16 and the processor multiplies that. Operands, attributes and results are those
// of onednn.matmul but for those types and the scales of groups, which come behind the weights where there are any
// (scales_type, scales_dims (groups, columns), scales_strides). Sums are in f32 and in an order that does not depend on
// how many threads there are.
//
// With src_group the source is rounded to eight bits first, so many numbers of a row with one scale (integer_source.h),
// and multiplied with integer weights in integers: the exact sum of such a group is scaled and added in f32.
//
// Prepacked weights (packed_layout.h) are read by all of that in order, a panel of columns after the other. A row or
// two are split into integers for them (packed_rows.h), which loses nothing that f32 would not.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/family.h"
#include "common/halves.h"
#include "common/machine_speed.h"
#include "common/processor.h"
#include "quantized_matmul/arithmetic.h"
#include "quantized_matmul/group_scales.h"
#include "quantized_matmul/halves.h"
#include "quantized_matmul/integer_arithmetic.h"
#include "quantized_matmul/interleaved_source.h"
#include "quantized_matmul/packed_layout.h"
#include "quantized_matmul/pieces.h"
#include "quantized_matmul/problem.h"
#include "quantized_matmul/rounded_source.h"
#include "quantized_matmul/source.h"
#include "quantized_matmul/split_source.h"
#include "quantized_matmul/zero_points.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

// From so many rows on integer weights are widened in tiles: fewer are multiplied in the registers in which they are
// widened.
constexpr int64_t kFewestTiledRows = 9;
// As many rows as this are split for prepacked weights: more of them take longer in integers than tiles of f32 do.
constexpr int64_t kMostSplitRows = 2;

const Arithmetic& BestArithmetic() {
  return ForThisProcessor(plain::kArithmetic, avx2::kArithmetic, avx512::kArithmetic);
}

// Null: the source is not rounded.
const IntegerArithmetic* IntegersFor(const Problem& problem) {
  if (problem.source_group == 0) return nullptr;
  if (HasAvx512Vnni()) return &avx512_vnni::kIntegerArithmetic;
  if (HasAvxVnni()) return &avx_vnni::kIntegerArithmetic;
  return HasAvx2() ? &avx2::kIntegerArithmetic : &plain::kIntegerArithmetic;
}

// Null where no row is split.
const SplitProducts* SplitProductsFor(const Problem& problem, int64_t packed_bytes) {
  if (packed_bytes == 0 || problem.source_group > 0 || problem.destination.rows > kMostSplitRows) return nullptr;
  return &avx512_vnni::kIntegerArithmetic.split_products;
}

// Null: the weights are not widened in tiles. Prepacked ones are, where rows cannot be split.
const Tiles* TilesFor(const Problem& problem, int64_t packed_bytes) {
  if (problem.source_group > 0) return nullptr;
  const int64_t rows = problem.destination.rows;
  if (!problem.has_integer_weights() || (rows < kFewestTiledRows && packed_bytes == 0)) return nullptr;
  const bool is_bf16 = problem.source_array.type == ElementType::kBF16 && rows > kMostSplitRows;
  if (is_bf16 && HasFastBf16Products()) return &avx512_bf16::kTiles;
  return &ForThisProcessor(plain::kTiles, avx2::kTiles, avx512::kTiles);
}

class QuantizedMatmul final : public Routine {
 public:
  QuantizedMatmul(const Provider& provider, const Attributes& attributes)
      : problem_(provider, attributes),
        prepacked_(PrepackedOf(problem_)),
        layout_(problem_.weights),
        arithmetic_(BestArithmetic()),
        tiles_(TilesFor(problem_, packed_bytes())),
        integers_(IntegersFor(problem_)),
        split_products_(SplitProductsFor(problem_, packed_bytes())) {
    operands_ = problem_.operands(packed_bytes());
    results_ = {problem_.result(), PlannedScratch(attributes)};
  }

  std::string implementation() const override {
    const char* const type = ByType("s4", "s8", "bf16", "f32");
    const char* const isa = integers_ != nullptr ? integers_->name
                            : tiles_ != nullptr  ? tiles_->name
                                                 : arithmetic_.name;
    return std::string("narrow:") + isa + ":" + type + (problem_.weights.block > 0 ? ":packed" : "") +
           (problem_.scales.has_value() ? ":groups" : "") + (problem_.zeros.has_value() ? ":zeros" : "") +
           (problem_.weights.has_contiguous_columns ? "" : ":rows") + (tiles_ != nullptr ? ":tiles" : "") +
           (integers_ != nullptr || split_products_ != nullptr ? ":integers" : "") +
           (packed_bytes() > 0 ? ":prepacked" : "");
  }
  const PrepackedWeights* prepacked() const override { return prepacked_.has_value() ? &*prepacked_ : nullptr; }

  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override {
    const bool is_bf16 = tiles_ != nullptr && tiles_->multiplies_bf16;
    const InterleavedSource ordered(problem_, buffers.operands[0]);
    std::optional<Source> source;
    std::optional<RoundedSource> rounded;
    if (integers_ != nullptr) {
      rounded.emplace(*integers_, problem_, buffers.operands[0], parallel);
    } else {
      source.emplace(ordered.array(), ordered.matrix(), is_bf16, ordered.buffer());
    }
    std::optional<SplitSource> split;
    if (split_products_ != nullptr) {
      split.emplace(*split_products_, problem_, *source->wide());
      if (!split->is_exact()) split.reset();
    }
    const bool is_any_order = !problem_.weights.has_contiguous_columns || packed_bytes() > 0;
    const GroupScales scales(problem_, problem_.scales.has_value() ? buffers.operands[2] : nullptr, is_any_order);
    std::vector<WidenedValues> others;
    std::vector<const float*> operands;
    const bool has_zeros = problem_.zeros.has_value() && problem_.zeros->array.has_value();
    const size_t ahead = problem_.scales.has_value() ? 3 : 2;
    std::optional<ZeroPoints> zeros;
    if (problem_.zeros.has_value()) {
      std::optional<WidenedMatrix> copy;
      const WidenedMatrix& wide =
          source->wide() ? *source->wide() : copy.emplace(ordered.array(), ordered.matrix(), ordered.buffer());
      zeros.emplace(problem_, wide, has_zeros ? buffers.operands[ahead] : nullptr);
    }
    const size_t first_other = ahead + (has_zeros ? 1 : 0);
    for (size_t i = 0; i < problem_.epilogue.operands().size(); ++i) {
      others.emplace_back(problem_.epilogue.operands()[i], buffers.operands[i + first_other]);
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
    const auto finish = [&](const Tile& tile) {
      if (zeros.has_value()) {
        zeros->Subtract(tile, scales.first, scales.distance, scales.step, values, sums.row_stride);
      }
      if (!problem_.epilogue.is_empty()) problem_.epilogue.Apply(values, sums, tile, operands);
      if (separate_sums != nullptr) {
        StoreRounded(values, tile, problem_.destination_array, problem_.destination, buffers.results[0]);
      }
    };
    const auto* weights = static_cast<const char*>(buffers.operands[1]);
    const Pieces pieces =
        split.has_value() ? PanelsOfPackedColumns(problem_, packed_bytes(), parallel) : PiecesFor(parallel);
    const int64_t parts = pieces.parts();
    const std::unique_ptr<float[]> sums_of_parts(parts > 1 ? new float[static_cast<size_t>(parts * sums.rows * columns)]
                                                           : nullptr);
    parallel.For(pieces.count(), /*grain=*/1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Piece piece = pieces.At(i);
        if (parts > 1) {
          float* const part = sums_of_parts.get() + piece.part * sums.rows * columns;
          Multiply(*source, weights, scales, part, columns, piece);
          continue;
        }
        if (split.has_value()) {
          MultiplySplit(split->rows(), weights, scales, values, sums.row_stride, piece.tile);
        } else if (rounded.has_value()) {
          MultiplyIntegers(rounded->rows(), weights, scales, values, sums.row_stride, piece.tile);
        } else {
          Multiply(*source, weights, scales, values, sums.row_stride, piece);
        }
        finish(piece.tile);
      }
    });
    if (parts == 1) return;
    for (int64_t row = 0; row < sums.rows; ++row) {
      for (int64_t part = 0; part < parts; ++part) {
        const float* from = sums_of_parts.get() + (part * sums.rows + row) * columns;
        float* to = values + row * sums.row_stride;
        for (int64_t i = 0; i < columns; ++i) to[i] = part == 0 ? from[i] : to[i] + from[i];
      }
    }
    finish({0, sums.rows, 0, columns});
  }

 private:
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

  Pieces PiecesFor(const Parallel& parallel) const {
    if (integers_ != nullptr) return PiecesOfTiles(problem_, integers_->columns, integers_->rows, parallel);
    if (tiles_ != nullptr) return PiecesOfTiles(problem_, tiles_->columns, /*grain=*/1, parallel);
    return PanelsOfColumns(problem_, parallel);
  }

  // Numbers of working memory for a piece of few rows: none where sums and source are used where they are.
  int64_t ScratchNumbers(int64_t rows, int64_t columns) const {
    const Weights& weights = problem_.weights;
    if (tiles_ != nullptr) return tiles_->scratch;
    if (weights.has_contiguous_columns) return rows > 1 ? rows * columns : 0;
    return weights.type == WeightsType::kS4 ? rows * weights.depth : 0;
  }

  void Multiply(const Source& source, const char* buffer, const GroupScales& scales, float* values, int64_t distance,
                const Piece& piece) const {
    const Weights& weights = problem_.weights;
    const Tile& tile = piece.tile;
    const int64_t before = weights.has_contiguous_columns ? piece.first * weights.distance : piece.first;
    const int64_t columns = tile.column_end - tile.column_begin, rows = tile.row_end - tile.row_begin;
    const int64_t width = tiles_ != nullptr ? tiles_->columns : columns;
    const int64_t numbers = ScratchNumbers(rows, columns);
    const std::unique_ptr<float[]> scratch(numbers > 0 ? new float[static_cast<size_t>(numbers)] : nullptr);
    for (int64_t column = tile.column_begin; column < tile.column_end; column += width) {
      MultiplyPanel({source.At(tile.row_begin, piece.first), source.row_stride(), rows, piece.last - piece.first,
                     WeightsAt(buffer, before, column), weights.distance,
                     buffer + WeightBytes(weights.type, weights.elements), weights.flip(),
                     scales.At(piece.first, column), scales.distance, scales.step, scales.group,
                     std::min(width, tile.column_end - column), values + tile.row_begin * distance + column, distance,
                     scratch.get()});
    }
  }

  // The weights of a column, from a place in it on; of prepacked ones those of a panel's first columns or middle ones.
  const char* WeightsAt(const char* buffer, int64_t before, int64_t column) const {
    const Weights& weights = problem_.weights;
    const int64_t step = weights.has_contiguous_columns ? 1 : weights.distance;
    if (packed_bytes() == 0) return buffer + WeightBytes(weights.type, weights.offset + before + column * step);
    return buffer + layout_.panel_bytes() * (column / kPanelColumns) + column % kPanelColumns * kNumbersPerStep;
  }

  // A part of the sums: whole panels.
  void MultiplySplit(const SplitRows& source, const char* buffer, const GroupScales& scales, float* values,
                     int64_t distance, const Tile& tile) const {
    const bool is_four_bits = problem_.weights.type == WeightsType::kS4, is_scaled = problem_.scales.has_value();
    const auto of_s4 = is_scaled ? split_products_->scaled_s4 : split_products_->s4;
    const auto of_s8 = is_scaled ? split_products_->scaled_s8 : split_products_->s8;
    const int64_t groups = is_scaled ? problem_.scales->matrix.rows : 0;
    const std::unique_ptr<float[]> scratch(new float[static_cast<size_t>(groups * kPanelColumns)]);
    for (int64_t column = tile.column_begin; column < tile.column_end; column += kPanelColumns) {
      (is_four_bits ? of_s4 : of_s8)({&source, tile.row_end - tile.row_begin,
                                      reinterpret_cast<const uint8_t*>(WeightsAt(buffer, 0, column)),
                                      scales.At(0, column), scales.distance, scales.step, scales.group,
                                      std::min(kPanelColumns, tile.column_end - column),
                                      values + tile.row_begin * distance + column, distance, scratch.get()});
    }
  }

  // A tile of the sums, from a block of the source on.
  void MultiplyIntegers(const RoundedRows& source, const char* buffer, const GroupScales& scales, float* values,
                        int64_t distance, const Tile& tile) const {
    const Weights& weights = problem_.weights;
    const bool is_scaled = problem_.scales.has_value();
    const IntegerLoops& s4 = is_scaled ? integers_->scaled_s4 : integers_->s4;
    const IntegerLoops& s8 = is_scaled ? integers_->scaled_s8 : integers_->s8;
    const IntegerLoops& loops = weights.type == WeightsType::kS4 ? s4 : s8;
    const std::unique_ptr<uint8_t[]> scratch(new uint8_t[static_cast<size_t>(integers_->scratch(source))]);
    for (int64_t column = tile.column_begin; column < tile.column_end; column += integers_->columns) {
      const char* const from = WeightsAt(buffer, 0, column);
      const IntegerPanel panel{&source,
                               tile.row_begin,
                               tile.row_end - tile.row_begin,
                               reinterpret_cast<const uint8_t*>(from),
                               weights.distance,
                               scales.At(0, column),
                               scales.distance,
                               scales.step,
                               scales.group,
                               std::min(integers_->columns, tile.column_end - column),
                               values + tile.row_begin * distance + column,
                               distance,
                               scratch.get()};
      const auto plain = weights.has_contiguous_columns ? loops.contiguous_columns : loops.contiguous_rows;
      (packed_bytes() > 0 ? loops.packed : plain)(panel);
    }
  }

  void MultiplyPanel(const Panel& panel) const {
    if (packed_bytes() > 0) {
      const auto& [of_s4, of_s8, of_scaled_s4, of_scaled_s8] = tiles_->packed;
      const auto scaled = ByType(of_scaled_s4, of_scaled_s8, of_s8, of_s8);
      return (problem_.scales.has_value() ? scaled : ByType(of_s4, of_s8, of_s8, of_s8))(panel);
    }
    const auto& [s4, s8, bf16, f32, scaled_s4, scaled_s8] = tiles_ != nullptr ? tiles_->loops : arithmetic_.loops;
    const Loops& loops = problem_.scales.has_value() ? ByType<const Loops&>(scaled_s4, scaled_s8, bf16, f32)
                                                     : ByType<const Loops&>(s4, s8, bf16, f32);
    (problem_.weights.has_contiguous_columns ? loops.contiguous_columns : loops.contiguous_rows)(panel);
  }

  int64_t packed_bytes() const { return prepacked_.has_value() ? prepacked_->bytes : 0; }

  Problem problem_;
  std::optional<PrepackedWeights> prepacked_;
  PackedLayout layout_;
  const Arithmetic& arithmetic_;
  const Tiles* tiles_;
  const IntegerArithmetic* integers_;
  const SplitProducts* split_products_;
};

const Family<QuantizedMatmul, kOwnEverywhere> family("narrow_product", {{}, "own.pack", kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::quantized_matmul
