// Matmul loops for column-major weights (contiguous rows).
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_ROWS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_ROWS_H_

#include <cstdint>
#include <type_traits>

#include "quantized_matmul/weights.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

// Where scales of groups multiply: what numbers of four bits are looked up in, the sums of a group, where there are
// registers for these as well, or each weight.
enum class Scaling { kNone, kNumbers, kSums, kWeights };
template <int kSums, bool kIsScaled, typename P>
constexpr Scaling kScaling = !kIsScaled                ? Scaling::kNone
                             : kHasNumbers<P>          ? Scaling::kNumbers
                             : kSums <= kMaxScaledSums ? Scaling::kSums
                                                       : Scaling::kWeights;

// One sum is computed in several parts, so that the processor need not wait for one addition before the next.
template <int kSums, Scaling scaling>
constexpr int kParts = kSums > 2                   ? 1
                       : scaling == Scaling::kSums ? 2
                                                   : 4 / kSums;

// Sums of kRows rows and kColumns columns, in parts.
template <int kRows, int kColumns, int kInParts>
using Sums = Vector[kInParts][kColumns][kRows];

// Adds the products of kVectors vectors of each column, which lie in pairs if those do, to `sums`.
template <int kRows, int kColumns, int kVectors, int kInParts, typename P>
HLO_DISPATCH_INLINE void AddProducts(const P (&weights)[kColumns], const Vector* scales, const float* source,
                                     int64_t source_stride, int64_t k, Sums<kRows, kColumns, kInParts>& sums) {
  constexpr int kAtOnce = kIsPaired<P> && kVectors > 1 ? 2 : 1;
#pragma GCC unroll 4
  for (int first = 0; first < kVectors; first += kAtOnce) {
    const int64_t place = k + first * kLanes;
    Vector wide[kColumns][kAtOnce];
    for (int i = 0; i < kColumns; ++i) {
      if constexpr (kAtOnce == 2) {
        const Pair pair = WidenedPair(weights[i] + place);
        wide[i][0] = pair.first;
        wide[i][1] = pair.second;
      } else {
        wide[i][0] = Widened(weights[i] + place);
      }
      for (int v = 0; v < kAtOnce && scales != nullptr; ++v) wide[i][v] *= scales[i];
    }
    for (int v = 0; v < kAtOnce; ++v) {
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        Vector factor = Load(source + row * source_stride + place + v * kLanes);
        if constexpr (kColumns > 1) HLO_DISPATCH_IN_REGISTER(factor);
        for (int i = 0; i < kColumns; ++i) sums[(first + v) % kInParts][i][row] += factor * wide[i][v];
      }
    }
  }
}

// The sums of kRows rows and kColumns columns from `column` on, each lane its part of them: of whole vectors.
template <int kRows, int kColumns, bool kIsScaled, typename P>
HLO_DISPATCH_INLINE void Dots(const Panel& panel, const float* source, int64_t column, ReadAhead& ahead,
                              Vector (&total)[kColumns][kRows]) {
  constexpr Scaling scaling = kScaling<kRows * kColumns, kIsScaled, P>;
  constexpr int kInParts = kParts<kRows * kColumns, scaling>;
  constexpr int kVectors = kIsPaired<P> && kInParts == 1 ? 2 : kInParts;
  constexpr int64_t kStep = kVectors * kLanes, kStepsInLine = kPerLine<P> / (kStep * kColumns);
  const int64_t group = kIsScaled ? panel.group : panel.depth, stride = panel.source_stride;
  const float* scales = kIsScaled ? ScalesAt(panel, 0, column) : nullptr;
  P columns[kColumns];
  for (int i = 0; i < kColumns; ++i) columns[i] = WeightsOf<P>(panel) + (column + i) * panel.weights_stride;
  Sums<kRows, kColumns, kInParts> sums = {};
  for (int64_t begin = 0; begin < panel.depth; begin += group) {
    const int64_t end = begin + group;
    P weights[kColumns];
    Vector scale[kColumns] = {};
    for (int i = 0; i < kColumns; ++i) {
      weights[i] = columns[i];
      if constexpr (kIsScaled) scale[i] = Repeated(scales[i * panel.scales_column_stride]);
      if constexpr (scaling == Scaling::kNumbers) weights[i] = columns[i].ScaledBy(scale[i]);
    }
    if constexpr (kIsScaled) scales += panel.scales_row_stride;
    const Vector* const of_each = scaling == Scaling::kWeights ? scale : nullptr;
    // From 0 where they are scaled, else from what there is.
    Sums<kRows, kColumns, kInParts> of_group;
    for (int part = 0; part < kInParts; ++part) {
      for (int i = 0; i < kColumns; ++i) {
        for (int row = 0; row < kRows; ++row) {
          of_group[part][i][row] = scaling == Scaling::kSums ? Vector{} : sums[part][i][row];
        }
      }
    }
    int64_t k = begin;
    for (; k + kStep <= end; k += kStep) {
      if constexpr (kStepsInLine <= 1) {
        ahead.FetchLines(kStep * kColumns / kPerLine<P>);
      } else {
        if (k % (kStepsInLine * kStep) == 0) ahead.FetchLines(1);
      }
      AddProducts<kRows, kColumns, kVectors, kInParts>(weights, of_each, source, stride, k, of_group);
    }
    for (; kIsPaired<P> && kVectors > 2 && k + 2 * kLanes <= end; k += 2 * kLanes) {
      AddProducts<kRows, kColumns, 2, kInParts>(weights, of_each, source, stride, k, of_group);
    }
    for (; k + kLanes <= end; k += kLanes) {
      AddProducts<kRows, kColumns, 1, kInParts>(weights, of_each, source, stride, k, of_group);
    }
    for (int part = 0; part < kInParts; ++part) {
      for (int i = 0; i < kColumns; ++i) {
        for (int row = 0; row < kRows; ++row) {
          const Vector found = of_group[part][i][row];
          sums[part][i][row] = scaling == Scaling::kSums ? sums[part][i][row] + scale[i] * found : found;
        }
      }
    }
  }
  for (int i = 0; i < kColumns; ++i) {
    for (int row = 0; row < kRows; ++row) {
      total[i][row] = sums[0][i][row];
      for (int part = 1; part < kInParts; ++part) total[i][row] += sums[part][i][row];
    }
  }
}

// How many columns are worked on at once: those of narrow weights share what the source is read to, and the steps of
// the loop; one row's wide ones take as long as memory does, which is quickest read in one go.
template <int kRows, typename P>
constexpr int kColumnsAtOnce = kRows == 1 && !kIsNarrow<P> ? 1
                               : kRows * 4 <= kMaxSums     ? 4
                                                           : 2;

// What lies behind the last whole vector of `count` columns.
template <int kRows, typename P>
void AddRest(const Panel& panel, const float* source, int64_t column, int64_t count, Vector (&totals)[kRows][kLanes]) {
  const int64_t whole = panel.depth / kLanes * kLanes, rest = panel.depth - whole;
  for (int64_t i = 0; i < count; ++i) {
    const Vector wide = WidenedFirst(WeightsOf<P>(panel) + ((column + i) * panel.weights_stride + whole), rest);
    for (int row = 0; row < kRows; ++row) {
      totals[row][i] += LoadFirst(source + row * panel.source_stride + whole, rest) * wide;
    }
  }
}

// The sums of kRows rows, or of as many as there are, and of up to kLanes columns from `column` on.
template <int kRows, bool kIsScaled, typename P>
void DotsOfSome(int64_t rows, const Panel& panel, const float* source, int64_t column, ReadAhead& ahead, float* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return DotsOfSome<kRows - 1, kIsScaled, P>(rows, panel, source, column, ahead, sums);
  }
  constexpr int kColumns = kColumnsAtOnce<kRows, P>;
  const int64_t count = panel.columns - column < kLanes ? panel.columns - column : kLanes;
  Vector totals[kRows][kLanes] = {};
  int64_t i = 0;
  const auto add = [&](auto columns) {
    for (; i + columns <= count; i += columns) {
      Vector total[columns][kRows];
      Dots<kRows, columns, kIsScaled, P>(panel, source, column + i, ahead, total);
      for (int j = 0; j < columns; ++j) {
        for (int row = 0; row < kRows; ++row) totals[row][i + j] = total[j][row];
      }
    }
  };
  add(std::integral_constant<int, kColumns>{});
  if constexpr (kColumns > 1) add(std::integral_constant<int, 1>{});
  // Groups are of whole vectors.
  if (!kIsScaled && panel.depth % kLanes != 0) AddRest<kRows, P>(panel, source, column, count, totals);
  for (int row = 0; row < kRows; ++row) {
    StoreFirst(sums + row * panel.sums_stride + column, TotalsOf(totals[row]), count);
  }
}

// A row of the source as weights are widened: of those in pairs first the ones with even numbers, then those with odd
// ones.
template <typename P>
void CopyInPairs(const float* from, const Panel& panel, int64_t group, float* to) {
  for (int64_t begin = 0; begin < panel.depth; begin += group) {
    const int64_t end = begin + group;
    int64_t k = begin;
    for (; k + 2 * kLanes <= end; k += 2 * kLanes) {
      const Pair pair = LoadPair<P>(from + k);
      Store(to + k, pair.first);
      Store(to + k + kLanes, pair.second);
    }
    for (; k < end; ++k) to[k] = from[k];
  }
}

template <bool kIsScaled, typename P>
void ContiguousRows(const Panel& given) {
  Panel panel = given;
  if constexpr (kIsPaired<P>) {
    for (int64_t row = 0; row < panel.rows; ++row) {
      CopyInPairs<P>(SourceOf(given) + row * given.source_stride, panel, kIsScaled ? panel.group : panel.depth,
                     panel.scratch + row * panel.depth);
    }
    panel.source = panel.scratch;
    panel.source_stride = panel.depth;
  }
  const int64_t row_bytes = BytesOf<P>(panel.depth);
  ReadAhead ahead(panel.weights, panel.columns, row_bytes, BytesOf<P>(panel.weights_stride), panel.columns, row_bytes);
  ReadAhead nothing;
  ahead.FetchLines((kBytesAhead + kColumnsAtOnce<1, P> * row_bytes) / kLine);
  for (int64_t column = 0; column < panel.columns; column += kLanes) {
    for (int64_t row = 0; row < panel.rows; row += kDotRows) {
      DotsOfSome<kDotRows, kIsScaled, P>(panel.rows - row, panel, SourceOf(panel) + row * panel.source_stride, column,
                                         row == 0 ? ahead : nothing, panel.sums + row * panel.sums_stride);
    }
  }
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_ROWS_H_
