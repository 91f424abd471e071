// Products of few rows with prepacked integer weights, in integers: numbers of f32 are split into four of eight bits,
// in groups that have one scale each. A part of integer_arithmetic_isa.cc.
//
//   m = max |x| over the group,    n = round(x * (127 * 2^24 / m)) = d0 + 2^8 d1 + 2^16 d2 + 2^24 d3
//
// Of each product with unsigned weights that adds four exact sums. What is rounded off is at most m / 2^31 of a number,
// less than f32 rounds off a sum, but where a group has a number that is thousands of times as large as the others are
// on average: such groups are refused, as those with infinities and NaNs are, and those whose scale is no normal
// number.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_PACKED_ROWS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_PACKED_ROWS_H_

#include <immintrin.h>

#include <cstdint>

#include "common/vectors.h"
#include "quantized_matmul/integer_source.h"
#include "quantized_matmul/integer_tiles.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

#if defined(__AVX512VNNI__)

constexpr float kLargestSum = 127.0f * (1 << 24), kOfLargestSum = 1.0f / kLargestSum;
// So many times the average of the others a group's largest number may be.
constexpr float kMostOverOthers = 4096.0f;
// The scale of a group with a smaller number as its largest one is no normal number, which XLA's threads take for 0.
constexpr uint32_t kSmallestSplitBits = (127 - 94) << 23;
// Lines that are fetched ahead: some hundred nanoseconds of what one thread reads.
constexpr int64_t kFetchedAhead = 8192;
constexpr int64_t kGroupsAhead = 4;
constexpr int kPanelVectors = 4;
constexpr int64_t kColumnsOfPanel = kPanelVectors * kLanes, kBytesOfStep = kColumnsOfPanel * kNumbersPerStep;

// Splits a group of a row; false where that is not exact enough.
HLO_DISPATCH_INLINE bool SplitGroup(const float* from, int64_t count, int64_t stride, int8_t* digits, float* scale,
                                    int32_t* sums) {
  typedef int8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
  const uint32_t bits = LargestBits(from, count);
  if (bits >= kInfinityBits || (bits > 0 && bits < kSmallestSplitBits)) return false;
  const float largest = FromBits(bits > 0 ? bits : kSmallestSplitBits);
  const Vector factor = Repeated(kLargestSum / largest), most = Repeated(FromBits(bits));
  Vector rest = {};
  Bits others = {}, total[kDigits] = {};
  for (int64_t k = 0; k < count; k += kLanes) {
    const Vector values = LoadNumbers(from + k, count - k);
    const Vector magnitude = reinterpret_cast<Vector>(reinterpret_cast<Bits>(values) & 0x7fffffff);
    rest += magnitude < most ? magnitude : Vector{};
    others -= (magnitude < most) & (magnitude > Vector{});
    Bits number = Rounded(values * factor);
    for (int i = 0; i < kDigits; ++i) {
      const Bits digit = number << 24 >> 24;
      total[i] += digit;
      *reinterpret_cast<Bytes*>(digits + i * stride + k) = __builtin_convertvector(digit, Bytes);
      number = (number - digit) >> 8;
    }
  }
  for (int i = 0; i < kDigits; ++i) sums[i] = Total(total[i]);
  *scale = largest * kOfLargestSum;
  return FromBits(bits) * static_cast<float>(Total(others)) <= kMostOverOthers * Total(rest);
}

bool SplitRow(const float* from, int64_t row, const SplitRows& rows) {
  int8_t* const digits = rows.digits + row * kDigits * rows.stride;
  bool is_exact = true;
  for (int64_t group = 0; group < rows.groups; ++group) {
    const int64_t first = group * rows.group, place = row * rows.groups + group;
    const int64_t count = rows.depth - first < rows.group ? rows.depth - first : rows.group;
    is_exact &=
        SplitGroup(from + first, count, rows.stride, digits + first, rows.scales + place, rows.sums + place * kDigits);
  }
  return is_exact;
}

// The sums of a group of the source and a panel's columns.
template <bool kIsFourBits>
HLO_DISPATCH_INLINE void SumGroup(const SplitRows& source, const int8_t* digits, const int32_t* sums, int64_t count,
                                  const uint8_t* weights, Vector (&of_group)[kPanelVectors]) {
  constexpr int64_t kBytesOfEight = kIsFourBits ? kBytesOfStep : 2 * kBytesOfStep;
  Bits total[kDigits][kPanelVectors];
  for (int i = 0; i < kDigits; ++i) {
    const Bits begin = -kWeightsOffset<kIsFourBits> * sums[i] - Bits{};
    for (int j = 0; j < kPanelVectors; ++j) total[i][j] = begin;
  }
  for (int64_t k = 0; k < count; k += 2 * kNumbersPerStep, weights += kBytesOfEight) {
    for (int64_t i = 0; i < kBytesOfEight; i += kLine) {
      __builtin_prefetch(weights + kFetchedAhead + i, /*rw=*/0, /*locality=*/3);
    }
    Bits raw[kPanelVectors];
    for (int j = 0; j < kPanelVectors; ++j) raw[j] = LoadBits(weights + j * kVectorBytes);
    for (int step = 0; step < 2; ++step) {
      Bits wide[kPanelVectors];
      for (int j = 0; j < kPanelVectors; ++j) {
        if constexpr (kIsFourBits) {
          wide[j] = (step == 0 ? raw[j] : raw[j] >> 4) & 0x0f0f0f0f;
        } else {
          wide[j] = step == 0 ? raw[j] : LoadBits(weights + kBytesOfStep + j * kVectorBytes);
        }
      }
      for (int i = 0; i < kDigits; ++i) {
        const Bits numbers = RepeatedStep(digits + i * source.stride + k + step * kNumbersPerStep);
        for (int j = 0; j < kPanelVectors; ++j) total[i][j] = MultiplyAdd(total[i][j], wide[j], numbers);
      }
    }
  }
  for (int j = 0; j < kPanelVectors; ++j) {
    const Bits high = (total[3][j] << 8) + total[2][j], low = (total[1][j] << 8) + total[0][j];
    of_group[j] = __builtin_convertvector(high, Vector) * 65536.0f + __builtin_convertvector(low, Vector);
  }
}

// Where a panel's scales are: as given, or copied so that each group's are a whole panel's, side by side.
struct PanelScales {
  const float* first;
  int64_t distance;
};

HLO_DISPATCH_INLINE PanelScales ScalesOf(const PackedPanel& panel) {
  if (panel.columns == kColumnsOfPanel && panel.scales_column_stride == 1) {
    return {panel.scales, panel.scales_row_stride};
  }
  const int64_t groups = (panel.source->depth + panel.scales_group - 1) / panel.scales_group;
  for (int64_t i = 0; i < kColumnsOfPanel; ++i) {
    const float* from = panel.scales + i * panel.scales_column_stride;
    for (int64_t group = 0; group < groups; ++group, from += panel.scales_row_stride) {
      panel.scratch[group * kColumnsOfPanel + i] = i < panel.columns ? *from : 0.0f;
    }
  }
  return {panel.scratch, kColumnsOfPanel};
}

// One panel, and one row of the source after the other: the panel is in a cache then.
template <bool kIsFourBits, bool kIsScaled>
void MultiplyPacked(const PackedPanel& panel) {
  const SplitRows& source = *panel.source;
  PanelScales scales{};
  if constexpr (kIsScaled) scales = ScalesOf(panel);
  const int64_t per_group = source.group * kColumnsOfPanel / (kIsFourBits ? 2 : 1);
  for (int64_t row = 0; row < panel.rows; ++row) {
    Vector total[kPanelVectors] = {};
    for (int64_t group = 0; group < source.groups; ++group) {
      const int64_t first = group * source.group, place = row * source.groups + group;
      const int64_t count = source.depth - first < source.group ? source.depth - first : source.group;
      Vector of_group[kPanelVectors];
      SumGroup<kIsFourBits>(source, source.digits + row * kDigits * source.stride + first,
                            source.sums + place * kDigits, count, panel.weights + group * per_group, of_group);
      const Vector factor = Repeated(source.scales[place]);
      if constexpr (kIsScaled) {
        const float* const of_weights = scales.first + first / panel.scales_group * scales.distance;
        for (int j = 0; j < kPanelVectors; ++j) {
          __builtin_prefetch(of_weights + kGroupsAhead * scales.distance + j * kLanes, /*rw=*/0, /*locality=*/3);
          // The two scales together may be no normal number.
          total[j] += Load(of_weights + j * kLanes) * (factor * of_group[j]);
        }
      } else {
        for (int j = 0; j < kPanelVectors; ++j) total[j] += factor * of_group[j];
      }
    }
    float* const to = panel.sums + row * panel.sums_stride;
    for (int j = 0; j < kPanelVectors && j * kLanes < panel.columns; ++j) {
      StoreNumbers(to + j * kLanes, total[j],
                   panel.columns - j * kLanes < kLanes ? panel.columns - j * kLanes : kLanes);
    }
  }
}

constexpr SplitProducts kSplitProducts = {SplitRow, MultiplyPacked<true, false>, MultiplyPacked<false, false>,
                                          MultiplyPacked<true, true>, MultiplyPacked<false, true>};
#else
constexpr SplitProducts kSplitProducts = {};
#endif

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_PACKED_ROWS_H_
