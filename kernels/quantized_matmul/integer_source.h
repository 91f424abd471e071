// Rounding of a source to eight bits, in groups that have one scale each. A part of integer_arithmetic_isa.cc.
//
//   m = max(max |x| over the group, 2^-100),    number = round(x * (127 / m)),    scale = m * (1 / 127)
//
// Each step rounds as XLA's instructions do, which freezing/dynamic_quantization.py writes. A group with a NaN or an
// infinity has the scale NaN.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_SOURCE_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_SOURCE_H_

#include <immintrin.h>

#include <cstdint>

#include "common/vectors.h"
#include "quantized_matmul/integer_arithmetic.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

constexpr float kLargestNumber = 127.0f, kOfLargestNumber = 1.0f / kLargestNumber;
constexpr uint32_t kSmallestBits = (127 - 100) << 23, kInfinityBits = 0x7f800000, kNanBits = 0x7fc00000;
// Numbers that are rounded before they are put where they belong.
constexpr int64_t kRoundedAtOnce = 64;

// To the nearest whole number, ties to even.
HLO_DISPATCH_INLINE Bits Rounded(Vector value) {
#if defined(__AVX512F__)
  const auto all = static_cast<__mmask16>(-1);
  return reinterpret_cast<Bits>(_mm512_maskz_cvtps_epi32(all, reinterpret_cast<__m512>(value)));
#elif defined(__AVX2__)
  return reinterpret_cast<Bits>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(value)));
#else
  return reinterpret_cast<Bits>(_mm_cvtps_epi32(reinterpret_cast<__m128>(value)));
#endif
}

// The bits of the largest absolute value; as numbers they are in the same order, infinities and NaNs behind all others.
HLO_DISPATCH_INLINE uint32_t LargestBits(const float* from, int64_t count) {
  Bits largest = {};
  for (int64_t k = 0; k < count; k += kLanes) {
    largest = Larger(largest, reinterpret_cast<Bits>(LoadNumbers(from + k, count - k)) & 0x7fffffff);
  }
  return static_cast<uint32_t>(Largest(largest));
}

// One group of a row. Each step's numbers are written `stride` bytes apart.
HLO_DISPATCH_INLINE void RoundGroup(const float* from, int64_t count, int64_t stride, int8_t* to, float* scale,
                                    int32_t* sum) {
  typedef int8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
  const uint32_t bits = LargestBits(from, count);
  const bool is_finite = bits < kInfinityBits;
  const float largest = FromBits(bits < kSmallestBits ? kSmallestBits : bits);
  const Vector factor = Repeated(kLargestNumber / largest);
  Bits total = {};
  for (int64_t first = 0; first < count; first += kRoundedAtOnce) {
    const int64_t rest = count - first < kRoundedAtOnce ? count - first : kRoundedAtOnce;
    int8_t numbers[kRoundedAtOnce];
    for (int64_t k = 0; k < rest; k += kLanes) {
      Bits rounded = {};
      if (is_finite) rounded = Rounded(LoadNumbers(from + first + k, rest - k) * factor);
      total += rounded;
      *reinterpret_cast<Bytes*>(numbers + k) = __builtin_convertvector(rounded, Bytes);
    }
    for (int64_t k = 0; k < rest; k += kNumbersPerStep, to += stride)
      __builtin_memcpy(to, numbers + k, kNumbersPerStep);
  }
  *sum = Total(total);
  *scale = is_finite ? largest * kOfLargestNumber : FromBits(kNanBits);
}

template <int kRows>
void RoundRows(const float* source, int64_t source_stride, int64_t rows, int64_t block, const RoundedRows& rounded) {
  const int64_t groups = rounded.groups, block_bytes = rounded.steps * kRows * kNumbersPerStep;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t place = block * groups + group;
      RoundGroup(source + row * source_stride + group * rounded.group, rounded.group, kRows * kNumbersPerStep,
                 rounded.numbers + place * block_bytes + row * kNumbersPerStep, rounded.scales + place * kRows + row,
                 rounded.sums + place * kRows + row);
    }
  }
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_INTEGER_SOURCE_H_
