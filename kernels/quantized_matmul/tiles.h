// Products of many rows: integer weights are widened in tiles, which all rows of the source are multiplied with.
//
// A tile has the columns of a few vectors. One step multiplies a number of the source, or two of bf16, with as many
// rows of the tile: it reads these vectors of widened weights, each lane with its column's, and repeats the source's.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_TILES_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_TILES_H_

#include <cstdint>

#include "quantized_matmul/weights.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

#if defined(__AVX512BF16__)
constexpr bool kMultipliesBf16 = true;
using SourceNumber = AnyHalf;
#else
constexpr bool kMultipliesBf16 = false;
using SourceNumber = AnyFloat;
#endif
// Numbers that a lane multiplies in one step.
constexpr int kPerStep = kMultipliesBf16 ? 2 : 1;

// The sums of so many rows and of a tile's vectors are in registers.
constexpr int kSumRows = 6;
#if defined(__AVX512F__)
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif
constexpr int64_t kTileColumns = kTileVectors * kLanes;
// Rows of weights that are widened at once: what they take, 128 kB at most, stays in the second-level cache, and so do
// as many numbers of some hundred rows of the source.
constexpr int64_t kWidenedDepth = 512;
// Numbers of f32 that these take, and the scales of as many groups as there may be, of which the first may begin ahead.
constexpr int64_t kWidenedNumbers = kWidenedDepth / kPerStep * kTileColumns;
constexpr int64_t kScaleNumbers = (kWidenedDepth / kGroupGrain + 1) * kTileColumns;
static_assert(kWidenedDepth % 8 == 0, "whole steps of packed weights");
// So many rows of weights ahead of what is widened lie what is fetched; rows are too far apart for the processor to
// guess.
constexpr int64_t kRowsAhead = 16;

// A vector for each lane's column of a tile. Those of weights of four bits may lie in pairs, as WidenedPair has them.
struct TileVectors {
  Vector at[kTileVectors];
};

HLO_DISPATCH_INLINE void StoreStep(float* widened, int64_t step, const TileVectors& vectors) {
  for (int i = 0; i < kTileVectors; ++i) Store(widened + step * kTileColumns + i * kLanes, vectors.at[i]);
}

// Two rows of weights in bf16, in which integers are exact, each lane with both of its column's.
HLO_DISPATCH_INLINE Vector Interleaved(Vector first, Vector second) {
  typedef uint32_t Wide __attribute__((vector_size(kVectorBytes)));
  return reinterpret_cast<Vector>((reinterpret_cast<Wide>(second) & 0xffff0000u) |
                                  (reinterpret_cast<Wide>(first) >> 16));
}

// One row of a tile, or as many columns of it as there are, and zeros.
template <bool kIsWhole, typename P>
HLO_DISPATCH_INLINE TileVectors RowOfTile(const Panel& panel, int64_t k) {
  P weights = WeightsOf<P>(panel) + k * panel.weights_stride;
  uint8_t bytes[kTileColumns] = {};
  if constexpr (!kIsWhole) {
    __builtin_memcpy(bytes, Address(weights), static_cast<size_t>(BytesOf<P>(panel.columns)));
    weights = WeightsAt<P>(bytes, panel);
  }
  TileVectors row;
  for (int i = 0; i < kTileVectors; i += 2) {
    const Pair pair = WidenedPair(weights + i * kLanes);
    row.at[i] = pair.first;
    row.at[i + 1] = pair.second;
  }
  return row;
}

// Row-major weights, rows [first, last) of them. Pairs lie as WidenedPair has them.
template <bool kIsWhole, typename P>
void WidenRows(const Panel& panel, int64_t first, int64_t last, float* widened) {
  const auto row = [&](int64_t k) {
    if (k + kRowsAhead < panel.depth) Fetch(Address(WeightsOf<P>(panel) + (k + kRowsAhead) * panel.weights_stride));
    return RowOfTile<kIsWhole, P>(panel, k);
  };
  for (int64_t k = first; k < last; k += kPerStep) {
    TileVectors step = row(k);
    if constexpr (kMultipliesBf16) {
      TileVectors next = {};
      if (k + 1 < last) next = row(k + 1);
      for (int i = 0; i < kTileVectors; ++i) step.at[i] = Interleaved(step.at[i], next.at[i]);
    }
    StoreStep(widened, (k - first) / kPerStep, step);
  }
}

// Exchanges rows and columns of a square: of each square of `step` those beside the diagonal.
template <int step = kLanes / 2>
HLO_DISPATCH_INLINE void Transpose(Vector (&rows)[kLanes]) {
  Bits upper, lower;
  for (int i = 0; i < kLanes; ++i) {
    upper[i] = i & step ? kLanes + i - step : i;
    lower[i] = i & step ? kLanes + i : i + step;
  }
  for (int i = 0; i < kLanes; ++i) {
    if (i & step) continue;
    const Vector one = rows[i], other = rows[i + step];
    rows[i] = __builtin_shuffle(one, other, upper);
    rows[i + step] = __builtin_shuffle(one, other, lower);
  }
  if constexpr (step > 1) Transpose<step / 2>(rows);
}

// Rows [k, k + kLanes) of a column, as far as there are any, and zeros.
template <typename P>
HLO_DISPATCH_INLINE Vector PartOfColumn(const Panel& panel, int64_t column, int64_t k, int64_t last) {
  if (k >= last) return Vector{};
  const P weights = WeightsOf<P>(panel) + (column * panel.weights_stride + k);
  return last - k < kLanes ? WidenedFirst(weights, last - k) : Widened(weights);
}

// Column-major weights.
template <typename P>
void WidenColumns(const Panel& panel, int64_t first, int64_t last, float* widened) {
  for (int64_t k = first; k < last; k += kLanes * kPerStep) {
    for (int64_t part = 0; part < kTileVectors; ++part) {
      Vector lines[kLanes] = {};
      for (int64_t i = 0; i < kLanes && part * kLanes + i < panel.columns; ++i) {
        const int64_t column = part * kLanes + i;
        lines[i] = PartOfColumn<P>(panel, column, k, last);
#if defined(__AVX512BF16__)
        const Vector next = PartOfColumn<P>(panel, column, k + kLanes, last);
        lines[i] = reinterpret_cast<Vector>(
            _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(next), reinterpret_cast<__m512>(lines[i])));
#endif
      }
      Transpose(lines);
      for (int64_t i = 0; i < kLanes && k + i * kPerStep < last; ++i) {
        Store(widened + ((k - first) / kPerStep + i) * kTileColumns + part * kLanes, lines[i]);
      }
    }
  }
}

// Prepacked weights (packed_layout.h): a panel's are a tile's. Rows behind the last one are zeros.
constexpr bool kReadsPacked = kTileColumns == 64;
constexpr int64_t kPackedStepBytes = 4 * kTileColumns;

template <bool kIsFourBits>
void WidenPacked(const Panel& panel, int64_t first, int64_t last, float* widened) {
  constexpr int kStepRows = 4, kStepsOfByte = kIsFourBits ? 2 : 1;
  typedef int32_t AnyBytes __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  const char* weights = static_cast<const char*>(panel.weights) + first / (kStepRows * kStepsOfByte) * kPackedStepBytes;
  for (int64_t k = first; k < last; k += kStepRows * kStepsOfByte, weights += kPackedStepBytes) {
    for (int64_t i = 0; i < kPackedStepBytes; i += kLine) Fetch(weights + kBytesAhead + i);
    for (int j = 0; j < kTileVectors; ++j) {
      const Bits bytes = *reinterpret_cast<const AnyBytes*>(weights + j * kVectorBytes);
      for (int step = 0; step < kStepsOfByte; ++step) {
        Vector rows[kStepRows];
        for (int i = 0; i < kStepRows; ++i) {
          const Bits number = kIsFourBits ? (bytes >> (8 * i + 4 * step) & 15) - 8 : (bytes >> 8 * i & 255) - 128;
          rows[i] = __builtin_convertvector(number, Vector);
        }
        float* const to = widened + (k - first + step * kStepRows) / kPerStep * kTileColumns + j * kLanes;
        for (int i = 0; i < kStepRows; i += kPerStep) {
          Vector together = rows[i];
          if constexpr (kMultipliesBf16) together = Interleaved(rows[i], rows[i + 1]);
          Store(to + i / kPerStep * kTileColumns, together);
        }
      }
    }
  }
}

HLO_DISPATCH_INLINE Vector RepeatedStep(const SourceNumber* from) {
#if defined(__AVX512BF16__)
  int32_t both;
  __builtin_memcpy(&both, from, sizeof(both));
  return reinterpret_cast<Vector>(both - Bits{});
#else
  return Repeated(*from);
#endif
}

HLO_DISPATCH_INLINE Vector MultiplyAdd(Vector sum, Vector source, Vector weights) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(source),
                                                   reinterpret_cast<__m512bh>(weights)));
#else
  return sum + source * weights;
#endif
}

// Whether tiles of these weights lie as WidenedPair has them, and not in order.
template <bool kIsByRow, typename P>
constexpr bool kTileIsPaired = kIsByRow && kIsPaired<P>;

template <bool kIsPairedTile>
HLO_DISPATCH_INLINE TileVectors LoadSums(const float* from, int64_t columns) {
  float values[kTileColumns] = {};
  if (columns < kTileColumns) {
    for (int64_t i = 0; i < columns; ++i) values[i] = from[i];
    from = values;
  }
  TileVectors sums;
  for (int i = 0; i < kTileVectors; i += 2) {
    const float* const at = from + i * kLanes;
    const Pair pair = kIsPairedTile ? LoadPair<FourBits>(at) : Pair{Load(at), Load(at + kLanes)};
    sums.at[i] = pair.first;
    sums.at[i + 1] = pair.second;
  }
  return sums;
}

template <bool kIsPairedTile>
HLO_DISPATCH_INLINE void StoreSums(float* to, const TileVectors& sums, int64_t columns) {
  float values[kTileColumns];
  float* const whole = columns < kTileColumns ? values : to;
  for (int i = 0; i < kTileVectors; i += 2) {
    if constexpr (kIsPairedTile) {
      StoreInOrder(whole + i * kLanes, {sums.at[i], sums.at[i + 1]});
    } else {
      Store(whole + i * kLanes, sums.at[i]);
      Store(whole + (i + 1) * kLanes, sums.at[i + 1]);
    }
  }
  for (int64_t i = 0; i < columns && whole == values; ++i) to[i] = values[i];
}

// What a tile's columns have in common for all rows of the source: rows [first, last) of their weights.
struct WidenedTile {
  int64_t first, last;
  const float* weights;  // for each step a tile's vectors
  const float* scales;   // for each group likewise, where there are scales
};

// The scales of a tile, and zeros where it has no columns. Groups may begin in front of `first`.
template <bool kIsPairedTile>
void ReadScales(const Panel& panel, int64_t first, int64_t last, float* scales) {
  for (int64_t group = first / panel.group; group * panel.group < last; ++group) {
    float values[kTileColumns] = {};
    for (int64_t i = 0; i < panel.columns; ++i) values[i] = *ScalesAt(panel, group * panel.group, i);
    StoreStep(scales, group - first / panel.group, LoadSums<kIsPairedTile>(values, kTileColumns));
  }
}

// The sums of kRows rows from `row` on, over the rows of weights that are widened. A group's is scaled when it is
// whole.
template <int kRows, bool kIsScaled, bool kIsPairedTile>
void AddProducts(const Panel& panel, int64_t row, const WidenedTile& tile) {
  const SourceNumber* source = static_cast<const SourceNumber*>(panel.source) + row * panel.source_stride + tile.first;
  const float *weights = tile.weights, *scales = tile.scales;
  float* const sums = panel.sums + row * panel.sums_stride;
  TileVectors total[kRows] = {};
  for (int i = 0; i < kRows && tile.first > 0; ++i) {
    total[i] = LoadSums<kIsPairedTile>(sums + i * panel.sums_stride, panel.columns);
  }
  for (int64_t k = tile.first; k < tile.last;) {
    const int64_t group_end = (k / panel.group + 1) * panel.group;
    const int64_t end = group_end < tile.last ? group_end : tile.last;
    Vector of_group[kRows][kTileVectors] = {};
    const auto add = [&](const auto& factor_of) {
      Vector wide[kTileVectors];
      for (int j = 0; j < kTileVectors; ++j) wide[j] = Load(weights + j * kLanes);
      for (int i = 0; i < kRows; ++i) {
        Vector factor = factor_of(source + i * panel.source_stride);
        HLO_DISPATCH_IN_REGISTER(factor);
        for (int j = 0; j < kTileVectors; ++j) of_group[i][j] = MultiplyAdd(of_group[i][j], factor, wide[j]);
      }
      weights += kTileColumns;
      source += kPerStep;
    };
    for (; k + kPerStep <= end; k += kPerStep) add([](const SourceNumber* from) { return RepeatedStep(from); });
    if (k < end) {
      // One number of bf16; behind it lies another row's, or nothing.
      add([](const SourceNumber* last) {
        const SourceNumber both[2] = {*last, 0};
        return RepeatedStep(both);
      });
      ++k;
    }
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kTileVectors; ++j) {
        total[i].at[j] += kIsScaled ? Load(scales + j * kLanes) * of_group[i][j] : of_group[i][j];
      }
    }
    if constexpr (kIsScaled) scales += kTileColumns;
  }
  for (int i = 0; i < kRows; ++i) StoreSums<kIsPairedTile>(sums + i * panel.sums_stride, total[i], panel.columns);
}

// Calls it with as many rows as there are, of kRows at most.
template <int kRows, bool kIsScaled, bool kIsPairedTile>
void AddProductsOfSome(const Panel& panel, int64_t row, const WidenedTile& tile) {
  if constexpr (kRows > 1) {
    if (panel.rows - row < kRows) return AddProductsOfSome<kRows - 1, kIsScaled, kIsPairedTile>(panel, row, tile);
  }
  AddProducts<kRows, kIsScaled, kIsPairedTile>(panel, row, tile);
}

// `widen` writes rows [first, last) of a panel's weights where it says.
template <bool kIsPairedTile, bool kIsScaled, typename Widen>
HLO_DISPATCH_INLINE void MultiplyWidened(const Panel& panel, const Widen& widen) {
  float* const widened = FirstLine(panel.scratch);
  float* const scales = widened + kWidenedNumbers;
  for (int64_t first = 0; first < panel.depth; first += kWidenedDepth) {
    const int64_t last = panel.depth - first < kWidenedDepth ? panel.depth : first + kWidenedDepth;
    widen(first, last, widened);
    if constexpr (kIsScaled) ReadScales<kIsPairedTile>(panel, first, last, scales);
    const WidenedTile tile{first, last, widened, scales};
    for (int64_t row = 0; row < panel.rows; row += kSumRows) {
      AddProductsOfSome<kSumRows, kIsScaled, kIsPairedTile>(panel, row, tile);
    }
  }
}

template <bool kIsByRow, bool kIsScaled, typename P>
void MultiplyTile(const Panel& panel) {
  MultiplyWidened<kTileIsPaired<kIsByRow, P>, kIsScaled>(panel, [&](int64_t first, int64_t last, float* widened) {
    if constexpr (!kIsByRow) {
      WidenColumns<P>(panel, first, last, widened);
    } else if (panel.columns == kTileColumns) {
      WidenRows<true, P>(panel, first, last, widened);
    } else {
      WidenRows<false, P>(panel, first, last, widened);
    }
  });
}

template <bool kIsFourBits, bool kIsScaled>
void MultiplyPackedTile(const Panel& panel) {
  MultiplyWidened</*kIsPairedTile=*/false, kIsScaled>(panel, [&](int64_t first, int64_t last, float* widened) {
    WidenPacked<kIsFourBits>(panel, first, last, widened);
  });
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_TILES_H_
