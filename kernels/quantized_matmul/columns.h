// Matmul loops for row-major weights (contiguous columns).
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_COLUMNS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_COLUMNS_H_

#include <cstdint>

#include "quantized_matmul/weights.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

// Rows of weights that are worked on at once: sums are fetched and stored once for all of them.
constexpr int kDepth = 8;
// So many columns are worked on from one look ahead to the next.
constexpr int64_t kColumnStep = 64;

#if defined(__AVX512F__)
#define HLO_DISPATCH_IN_REGISTER(vector) asm("" : "+v"(vector))
#else
#define HLO_DISPATCH_IN_REGISTER(vector) asm("" : "+x"(vector))
#endif

// sums += source · weights (· scales) for a vector or a pair of columns and kRows x kRowsOfWeights factors. Sums of a
// pair lie as it does.
template <int kRows, int kRowsOfWeights, int kVectors, bool kIsScaled, typename P>
HLO_DISPATCH_INLINE void AddVectors(const Vector (&factors)[kRows][kRowsOfWeights], P weights, int64_t distance,
                                    const float* scales, float* sums, int64_t sums_stride) {
  Vector total[kRows][kVectors] = {};
  for (int row = 0; row < kRows && !kIsScaled; ++row) {
    for (int i = 0; i < kVectors; ++i) total[row][i] = Load(sums + row * sums_stride + i * kLanes);
  }
  for (int k = 0; k < kRowsOfWeights; ++k) {
    Vector wide[kVectors];
    if constexpr (kVectors == 2) {
      const Pair pair = WidenedPair(weights + k * distance);
      wide[0] = pair.first;
      wide[1] = pair.second;
    } else {
      wide[0] = Widened(weights + k * distance);
    }
    for (int row = 0; row < kRows; ++row) {
      Vector factor = factors[row][k];
      // Fetched once: the compiler would do so in each of the products.
      if constexpr (kVectors > 1 && kRows > 2) HLO_DISPATCH_IN_REGISTER(factor);
      for (int i = 0; i < kVectors; ++i) total[row][i] += factor * wide[i];
    }
  }
  Vector scale[kVectors] = {};
  if constexpr (kIsScaled && kVectors == 2) {
    const Pair pair = LoadPair<P>(scales);
    scale[0] = pair.first;
    scale[1] = pair.second;
  } else if constexpr (kIsScaled) {
    scale[0] = Load(scales);
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) {
      float* to = sums + row * sums_stride + i * kLanes;
      if constexpr (kIsScaled) total[row][i] = Load(to) + scale[i] * total[row][i];
      Store(to, total[row][i]);
    }
  }
}

// The same along whole vectors of columns. What is needed next lies `ahead` weights from what is worked on.
template <int kRows, int kRowsOfWeights, bool kIsScaled, typename P>
void AddRows(const Panel& panel, const float* source, P weights, const float* scales, int64_t ahead, float* sums) {
  constexpr int kVectors = 2;  // a factor is fetched once for both
  Vector factors[kRows][kRowsOfWeights];
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kRowsOfWeights; ++k) factors[row][k] = Repeated(source[row * panel.source_stride + k]);
  }
  const int64_t distance = panel.weights_stride;
  int64_t column = 0;
  for (; column + kColumnStep <= panel.columns; column += kColumnStep) {
    for (int k = 0; k < kRowsOfWeights; ++k) {
      const P next = weights + (k * distance + ahead + column);
      for (int64_t i = 0; i < kColumnStep; i += kPerLine<P>) Fetch(Address(next + i));
    }
    for (int64_t i = column; i < column + kColumnStep; i += kVectors * kLanes) {
      AddVectors<kRows, kRowsOfWeights, kVectors, kIsScaled>(factors, weights + i, distance,
                                                             Behind<kIsScaled>(scales, i), sums + i, panel.sums_stride);
    }
  }
  for (; column + kLanes <= panel.columns; column += kLanes) {
    AddVectors<kRows, kRowsOfWeights, 1, kIsScaled>(
        factors, weights + column, distance, Behind<kIsScaled>(scales, column), sums + column, panel.sums_stride);
  }
}

// Calls it with as many rows as there are, of kRows at most.
template <int kRows, int kRowsOfWeights, bool kIsScaled, typename P>
HLO_DISPATCH_INLINE void AddSomeRows(int64_t rows, const Panel& panel, const float* source, P weights,
                                     const float* scales, int64_t ahead, float* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return AddSomeRows<kRows - 1, kRowsOfWeights, kIsScaled>(rows, panel, source, weights, scales, ahead, sums);
    }
  }
  AddRows<kRows, kRowsOfWeights, kIsScaled>(panel, source, weights, scales, ahead, sums);
}

// The columns behind the last whole vector.
template <bool kIsScaled, typename P>
void SumLastColumns(const Panel& panel, int64_t begin) {
  const int64_t count = panel.columns - begin;
  for (int64_t first = 0; first < panel.rows; first += kMaxRows) {
    const int64_t rows = panel.rows - first < kMaxRows ? panel.rows - first : kMaxRows;
    const float* source = SourceOf(panel) + first * panel.source_stride;
    Vector total[kMaxRows] = {};
    for (int64_t k = 0; k < panel.depth; ++k) {
      const P weights = WeightsOf<P>(panel) + (k * panel.weights_stride + begin);
      // What lies behind is the next row's, if there is one.
      Vector wide = IsWhole(weights, panel) ? Widened(weights) : WidenedFirst(weights, count);
      if constexpr (kIsScaled) wide *= LoadFirst(ScalesAt(panel, k, begin), count);
      for (int64_t row = 0; row < rows; ++row) total[row] += Repeated(source[row * panel.source_stride + k]) * wide;
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* sums = panel.sums + (first + row) * panel.sums_stride + begin;
      for (int64_t i = 0; i < count; ++i) sums[i] = total[row][i];
    }
  }
}

// Worked on in tiles: kTileDepth rows of weights, whose pages are not looked up anew for each of a few columns, and so
// many columns that their sums stay in the first-level cache.
constexpr int64_t kTileDepth = 64;
constexpr int64_t kTileSums = 4096;

// One tile: `columns` of them from `column` on, rows of weights [first, last). Its sums lie one row behind the other.
template <bool kIsScaled, typename P>
HLO_DISPATCH_INLINE void AddTile(const Panel& panel, int64_t column, int64_t columns, int64_t first, int64_t last,
                                 int64_t whole, float* sums) {
  Panel tile = panel;
  tile.columns = columns;
  tile.sums_stride = columns;
  const auto add = [&](auto* add_rows, int64_t k, int64_t ahead) {
    const P weights = WeightsOf<P>(panel) + (k * panel.weights_stride + column);
    const float* scales = kIsScaled ? ScalesAt(panel, k, column) : nullptr;
    for (int64_t row = 0; row < panel.rows; row += kMaxRows) {
      const float* source = SourceOf(panel) + row * panel.source_stride + k;
      add_rows(panel.rows - row, tile, source, weights, scales, row == 0 ? ahead : 0, sums + row * columns);
    }
  };
  int64_t k = first;
  for (; k + kDepth <= last; k += kDepth) {
    // What comes next: the next rows of the tile, the first ones of the next tile, or of the first one further down.
    int64_t ahead = kDepth * panel.weights_stride;
    if (k + 2 * kDepth > last && column + columns < whole) {
      ahead = (first - k) * panel.weights_stride + columns;
    } else if (k + 2 * kDepth > last) {
      ahead = panel.depth - last < kDepth ? 0 : (last - k) * panel.weights_stride - column;
    }
    add(AddSomeRows<kMaxRows, kDepth, kIsScaled, P>, k, ahead);
  }
  for (; k < last; ++k) add(AddSomeRows<kMaxRows, 1, kIsScaled, P>, k, 0);
}

template <bool kIsScaled, typename P>
void ContiguousColumns(const Panel& panel) {
  const int64_t whole = panel.columns / kLanes * kLanes;
  // One row is summed where it is wanted.
  float* scratch = panel.rows == 1 ? panel.sums : panel.scratch;
  for (int64_t i = 0; i < panel.rows * whole; ++i) scratch[i] = 0.0f;
  const int64_t width =
      kTileSums / panel.rows < kColumnStep ? kColumnStep : kTileSums / panel.rows / kColumnStep * kColumnStep;
  for (int64_t first = 0; first < panel.depth; first += kTileDepth) {
    const int64_t last = panel.depth - first < kTileDepth ? panel.depth : first + kTileDepth;
    for (int64_t column = 0; column < whole; column += width) {
      const int64_t columns = whole - column < width ? whole - column : width;
      AddTile<kIsScaled, P>(panel, column, columns, first, last, whole, scratch + column * panel.rows);
    }
  }
  for (int64_t column = 0; column < whole && (panel.rows > 1 || kIsPaired<P>); column += width) {
    const int64_t columns = whole - column < width ? whole - column : width;
    const int64_t in_pairs = kIsPaired<P> ? columns / kColumnStep * kColumnStep : 0;
    for (int64_t row = 0; row < panel.rows; ++row) {
      const float* from = scratch + column * panel.rows + row * columns;
      float* to = panel.sums + row * panel.sums_stride + column;
      for (int64_t i = 0; i < in_pairs; i += 2 * kLanes)
        StoreInOrder(to + i, {Load(from + i), Load(from + i + kLanes)});
      for (int64_t i = in_pairs; i < columns; i += kLanes) Store(to + i, Load(from + i));
    }
  }
  if (whole < panel.columns) SumLastColumns<kIsScaled, P>(panel, whole);
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_COLUMNS_H_
