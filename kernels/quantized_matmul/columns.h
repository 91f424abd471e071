// Matmul loops for row-major weights (contiguous columns).
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_COLUMNS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_COLUMNS_H_

#include <cstdint>

#include "quantized_matmul/weights.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

// Rows of weights that are summed up in registers, until sums are stored, and scaled. No group of weights ends within
// them.
template <typename P>
constexpr int64_t kDepth = kIsPaired<P> ? 16 : 8;
static_assert(kDepth<FourBits> <= kGroupGrain);

// Vectors of columns that are worked on at once: a line of weights, of four bits two in a byte, if registers suffice.
template <int kRows, typename P>
constexpr int VectorsAtOnce() {
  constexpr int64_t kInLine = kPerLine<P> / kLanes;
  int vectors = 2;
  while (2 * vectors * kRows <= kMaxSums && (vectors < 4 || 2 * vectors <= kInLine)) vectors *= 2;
  return vectors;
}

// Rows of weights, kDepth or fewer of them, and what they are multiplied with and added to. Sums of a pair of vectors
// lie as it does.
template <typename P>
struct RowsOfWeights {
  const float* source;
  int64_t source_stride;
  P weights;
  int64_t distance;
  int64_t depth;
  const float* scales;
  float* sums;
  int64_t sums_stride;
};

// sums += source · weights (· scales) for kRows rows and kVectors vectors of columns from `column` on.
template <int kRows, int kVectors, bool kIsScaled, typename P>
HLO_DISPATCH_INLINE void AddVectors(const RowsOfWeights<P>& of, int64_t column, ReadAhead& ahead) {
  constexpr bool kInPairs = kVectors > 1;
  constexpr int64_t kColumns = kVectors * kLanes, kRowsInLine = kPerLine<P> / kColumns;
  Vector total[kRows][kVectors] = {};
  float* const sums = of.sums + column;
  for (int row = 0; row < kRows && !kIsScaled; ++row) {
    for (int i = 0; i < kVectors; ++i) total[row][i] = Load(sums + row * of.sums_stride + i * kLanes);
  }
  P weights = of.weights + column;
  for (int64_t k = 0; k < of.depth; ++k, weights = weights + of.distance) {
    if constexpr (kRowsInLine <= 1) {
      ahead.FetchLines(kColumns / kPerLine<P>);
    } else {
      if (k % kRowsInLine == 0) ahead.FetchLines(1);
    }
    Vector wide[kVectors];
    for (int i = 0; i < kVectors; i += 2) {
      if constexpr (kInPairs) {
        const Pair pair = WidenedPair(weights + i * kLanes);
        wide[i] = pair.first;
        wide[i + 1] = pair.second;
      } else {
        wide[i] = Widened(weights);
      }
    }
    for (int row = 0; row < kRows; ++row) {
      Vector factor = Repeated(of.source[row * of.source_stride + k]);
      if constexpr (kVectors > 1) HLO_DISPATCH_IN_REGISTER(factor);
      for (int i = 0; i < kVectors; ++i) total[row][i] += factor * wide[i];
    }
  }
  Vector scale[kVectors] = {};
  for (int i = 0; i < kVectors && kIsScaled; i += 2) {
    if constexpr (kInPairs) {
      const Pair pair = LoadPair<P>(of.scales + column + i * kLanes);
      scale[i] = pair.first;
      scale[i + 1] = pair.second;
    } else {
      scale[i] = Load(of.scales + column);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) {
      float* to = sums + row * of.sums_stride + i * kLanes;
      if constexpr (kIsScaled) total[row][i] = Load(to) + scale[i] * total[row][i];
      Store(to, total[row][i]);
    }
  }
}

// The same along so many columns, whole vectors of them. Behind what lies in lines two vectors are worked on at once,
// and then one.
template <int kRows, bool kIsScaled, typename P>
void AddRows(const RowsOfWeights<P>& of, int64_t columns, ReadAhead& ahead) {
  constexpr int kVectors = VectorsAtOnce<kRows, P>();
  int64_t column = 0;
  for (; column + kVectors * kLanes <= columns; column += kVectors * kLanes) {
    AddVectors<kRows, kVectors, kIsScaled>(of, column, ahead);
  }
  for (; kVectors > 2 && column + 2 * kLanes <= columns; column += 2 * kLanes) {
    AddVectors<kRows, 2, kIsScaled>(of, column, ahead);
  }
  for (; column < columns; column += kLanes) AddVectors<kRows, 1, kIsScaled>(of, column, ahead);
}

// Calls it with as many rows as there are, of kRows at most.
template <int kRows, bool kIsScaled, typename P>
HLO_DISPATCH_INLINE void AddSomeRows(int64_t rows, const RowsOfWeights<P>& of, int64_t columns, ReadAhead& ahead) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return AddSomeRows<kRows - 1, kIsScaled>(rows, of, columns, ahead);
  }
  AddRows<kRows, kIsScaled>(of, columns, ahead);
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
constexpr int64_t kTileSums = 4096, kTileColumnsGrain = 64;

// One tile: `columns` of them from `column` on, rows of weights [first, last). Its sums lie one row behind the other.
template <bool kIsScaled, typename P>
HLO_DISPATCH_INLINE void AddTile(const Panel& panel, int64_t column, int64_t columns, int64_t first, int64_t last,
                                 float* sums, ReadAhead& ahead) {
  ReadAhead nothing;
  for (int64_t k = first; k < last; k += kDepth<P>) {
    const int64_t depth = last - k < kDepth<P> ? last - k : kDepth<P>;
    for (int64_t row = 0; row < panel.rows; row += kMaxRows) {
      const RowsOfWeights<P> of{SourceOf(panel) + row * panel.source_stride + k,
                                panel.source_stride,
                                WeightsOf<P>(panel) + (k * panel.weights_stride + column),
                                panel.weights_stride,
                                depth,
                                kIsScaled ? ScalesAt(panel, k, column) : nullptr,
                                sums + row * columns,
                                columns};
      AddSomeRows<kMaxRows, kIsScaled>(panel.rows - row, of, columns, row == 0 ? ahead : nothing);
    }
  }
}

template <bool kIsScaled, typename P>
void ContiguousColumns(const Panel& panel) {
  const int64_t whole = panel.columns / kLanes * kLanes;
  // One row is summed where it is wanted.
  float* scratch = panel.rows == 1 ? panel.sums : panel.scratch;
  for (int64_t i = 0; i < panel.rows * whole; ++i) scratch[i] = 0.0f;
  const int64_t width = kTileSums / panel.rows < kTileColumnsGrain
                            ? kTileColumnsGrain
                            : kTileSums / panel.rows / kTileColumnsGrain * kTileColumnsGrain;
  ReadAhead ahead(panel.weights, panel.depth, BytesOf<P>(panel.columns), BytesOf<P>(panel.weights_stride), kTileDepth,
                  BytesOf<P>(width));
  // What is worked on at once is there before that begins.
  const int64_t rows_ahead = kDepth<P> * (width < panel.columns ? width : panel.columns);
  ahead.FetchLines(kBytesAhead / kLine + rows_ahead / kPerLine<P>);
  for (int64_t first = 0; first < panel.depth; first += kTileDepth) {
    const int64_t last = panel.depth - first < kTileDepth ? panel.depth : first + kTileDepth;
    for (int64_t column = 0; column < whole; column += width) {
      const int64_t columns = whole - column < width ? whole - column : width;
      AddTile<kIsScaled, P>(panel, column, columns, first, last, scratch + column * panel.rows, ahead);
    }
  }
  for (int64_t column = 0; column < whole && (panel.rows > 1 || kIsPaired<P>); column += width) {
    const int64_t columns = whole - column < width ? whole - column : width;
    const int64_t in_pairs = kIsPaired<P> ? columns / (2 * kLanes) * (2 * kLanes) : 0;
    for (int64_t row = 0; row < panel.rows; ++row) {
      const float* from = scratch + column * panel.rows + row * columns;
      float* to = panel.sums + row * panel.sums_stride + column;
      for (int64_t i = 0; i < in_pairs; i += 2 * kLanes) {
        StoreInOrder(to + i, {Load(from + i), Load(from + i + kLanes)});
      }
      for (int64_t i = in_pairs; i < columns; i += kLanes) Store(to + i, Load(from + i));
    }
  }
  if (whole < panel.columns) SumLastColumns<kIsScaled, P>(panel, whole);
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_COLUMNS_H_
