// Matmul loops for column-major weights (contiguous rows).
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_ROWS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_ROWS_H_

#include <cstdint>

#include "quantized_matmul/weights.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

// The sums of kRows rows and kColumns columns from `column` on, each in kParts parts. What is needed next lies `ahead`
// weights from what is worked on.
template <int kRows, int kColumns, int kParts, bool kIsScaled, typename P>
HLO_DISPATCH_INLINE void Dots(const Panel& panel, const float* source, int64_t column, int64_t ahead, float* sums) {
  const P weights = WeightsOf<P>(panel) + column * panel.weights_stride;
  const int64_t group = kIsScaled ? panel.group : panel.depth;
  const float* scales = kIsScaled ? ScalesAt(panel, 0, column) : nullptr;
  // Scales multiply either the sums of a group, where there are registers for these as well, or each weight.
  constexpr bool kScalesSums = kIsScaled && kRows * kColumns <= kMaxScaledSums;
  Vector total[kParts][kRows][kColumns] = {};
  for (int64_t begin = 0; begin < panel.depth; begin += group) {
    const int64_t end = begin + group;
    Vector scale[kColumns] = {};
    for (int i = 0; i < kColumns && kIsScaled; ++i) {
      scale[i] = Repeated(scales[i * panel.scales_column_stride]);
    }
    if constexpr (kIsScaled) scales += panel.scales_row_stride;
    Vector of_group[kRows][kColumns] = {};
    const auto at = [&](int i, int64_t k) { return weights + (i * panel.weights_stride + k); };
    const auto add = [&](int part, int i, Vector wide, const Vector(&factors)[kRows]) {
      if constexpr (kIsScaled && !kScalesSums) wide *= scale[i];
      for (int row = 0; row < kRows; ++row) {
        (kScalesSums ? of_group[row][i] : total[part][row][i]) += factors[row] * wide;
      }
    };
    const auto fetch = [&](int64_t k) {
      for (int i = 0; i < kColumns && k % kPerLine<P> == 0; ++i) Fetch(Address(at(i, k) + ahead));
    };
    const auto add_vector = [&](int part, int64_t k) {
      Vector factors[kRows];
      for (int row = 0; row < kRows; ++row) factors[row] = Load(source + row * panel.source_stride + k);
      fetch(k);
      for (int i = 0; i < kColumns; ++i) add(part, i, Widened(at(i, k)), factors);
    };
    int64_t k = begin;
    for (; kIsPaired<P> && k + 2 * kLanes <= end; k += 2 * kLanes) {
      Vector even[kRows], odd[kRows];
      for (int row = 0; row < kRows; ++row) {
        const Pair pair = LoadPair<P>(source + row * panel.source_stride + k);
        even[row] = pair.first;
        odd[row] = pair.second;
      }
      fetch(k);
      for (int i = 0; i < kColumns; ++i) {
        const Pair wide = WidenedPair(at(i, k));
        add(0, i, wide.first, even);
        add(0, i, wide.second, odd);
      }
    }
    for (; k + kParts * kLanes <= end; k += kParts * kLanes) {
      for (int part = 0; part < kParts; ++part) add_vector(part, k + part * kLanes);
    }
    for (; k + kLanes <= end; k += kLanes) add_vector(0, k);
    const int64_t rest = end - k;
    if (rest > 0) {
      Vector factors[kRows];
      for (int row = 0; row < kRows; ++row) {
        factors[row] = LoadFirst(source + row * panel.source_stride + k, rest);
      }
      for (int i = 0; i < kColumns; ++i) add(0, i, WidenedFirst(at(i, k), rest), factors);
    }
    for (int row = 0; row < kRows && kScalesSums; ++row) {
      for (int i = 0; i < kColumns; ++i) total[0][row][i] += scale[i] * of_group[row][i];
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kColumns; ++i) {
      for (int part = 1; part < kParts; ++part) total[0][row][i] += total[part][row][i];
      sums[row * panel.sums_stride + column + i] = Total(total[0][row][i]);
    }
  }
}

// How many columns are worked on at once, and in how many parts one row's sums are. Weights of eight bits take several
// instructions each, and share the source's; wider ones take as long as memory does, which is quickest read in one go.
template <typename P>
constexpr int kColumnsAtOnce = kIsNarrow<P> ? kDotColumns : 1;
template <int kRows, typename P>
constexpr int kPartsAtOnce = !kIsNarrow<P> && kRows < kDotRows ? 2 : 1;

// Calls it with as many rows and columns as there are, of kRows and kColumnsAtOnce at most.
template <int kRows, bool kIsScaled, typename P>
void DotsOfSome(int64_t rows, const Panel& panel, const float* source, int64_t column, int64_t ahead, float* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return DotsOfSome<kRows - 1, kIsScaled, P>(rows, panel, source, column, ahead, sums);
  }
  constexpr int kParts = kPartsAtOnce<kRows, P>;
  if (panel.columns - column >= kColumnsAtOnce<P>) {
    return Dots<kRows, kColumnsAtOnce<P>, kParts, kIsScaled, P>(panel, source, column, ahead, sums);
  }
  for (; column < panel.columns; ++column) Dots<kRows, 1, kParts, kIsScaled, P>(panel, source, column, 0, sums);
}

template <bool kIsScaled, typename P>
void ContiguousRows(const Panel& panel) {
  for (int64_t column = 0; column < panel.columns; column += kColumnsAtOnce<P>) {
    // Behind the last columns there is nothing to fetch.
    const bool is_last = panel.columns - column < 2 * kColumnsAtOnce<P>;
    const int64_t ahead = is_last ? 0 : kColumnsAtOnce<P> * panel.weights_stride;
    for (int64_t row = 0; row < panel.rows; row += kDotRows) {
      DotsOfSome<kDotRows, kIsScaled, P>(panel.rows - row, panel, SourceOf(panel) + row * panel.source_stride, column,
                                         row == 0 ? ahead : 0, panel.sums + row * panel.sums_stride);
    }
  }
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_ROWS_H_
