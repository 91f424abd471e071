// Dequantization: weights of any type as vectors of f32. A part of arithmetic_isa.cc and tiles_isa.cc.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_WEIGHTS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_WEIGHTS_H_

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "common/vectors.h"
#include "quantized_matmul/arithmetic.h"
#include "quantized_matmul/read_ahead.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

// The sums of so many rows, and of so many rows and columns, are in registers.
#if defined(__AVX512F__)
constexpr int kMaxRows = 8, kMaxSums = 16, kDotRows = 8, kMaxScaledSums = 8;
#else
constexpr int kMaxRows = 4, kMaxSums = 8, kDotRows = 2, kMaxScaledSums = 4;
#endif

// Where weights are: a pointer, or this for those that share a byte, the first one in its lower half. Whoever counts
// from one goes by even numbers.
struct FourBits {
  const uint8_t* bytes;
#if defined(__AVX512F__)
  Vector numbers;  // what each of them is, by its bits
  // Of `flip` the sign is set where 0 to 15 are -8 to 7.
  HLO_DISPATCH_INLINE static FourBits At(const void* address, uint8_t flip) {
    Bits bits;
    for (int i = 0; i < kLanes; ++i) bits[i] = i;
    return {static_cast<const uint8_t*>(address), __builtin_convertvector((bits ^ (flip & 8) ^ 8) - 8, Vector)};
  }
  HLO_DISPATCH_INLINE FourBits operator+(int64_t count) const { return {bytes + (count >> 1), numbers}; }
  HLO_DISPATCH_INLINE FourBits ScaledBy(Vector scale) const { return {bytes, numbers * scale}; }
#else
  uint8_t flip;  // these bits: 0, or the sign of both where 0 to 15 are -8 to 7
  HLO_DISPATCH_INLINE static FourBits At(const void* address, uint8_t flip) {
    return {static_cast<const uint8_t*>(address), flip};
  }
  HLO_DISPATCH_INLINE FourBits operator+(int64_t count) const { return {bytes + (count >> 1), flip}; }
#endif
};

template <typename P>
constexpr int64_t kPerLine = kLine / static_cast<int64_t>(sizeof(std::remove_pointer_t<P>));
template <>
constexpr int64_t kPerLine<FourBits> = 2 * kLine;
template <typename P>
constexpr bool kIsNarrow = kPerLine<P> >= kLine;

HLO_DISPATCH_INLINE Vector Widened(const int8_t* from) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  // The masks keep the compiler from warning of what the plain ones leave undefined.
  const auto all = static_cast<__mmask16>(-1);
  return reinterpret_cast<Vector>(_mm512_maskz_cvtepi32_ps(all, _mm512_maskz_cvtepi8_epi32(all, bytes)));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<Vector>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
#else
  typedef int8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Bytes*>(from), Vector);
#endif
}

HLO_DISPATCH_INLINE Vector Widened(const Bf16* from) { return LoadBf16(reinterpret_cast<const char*>(from)); }
HLO_DISPATCH_INLINE Vector Widened(const float* from) { return Load(from); }

// Each byte becomes two lanes, the second one with its upper half where the first one has its lower half: in the last
// four bits. What stands above them does not matter.
HLO_DISPATCH_INLINE Vector Widened(FourBits from) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from.bytes));
  const auto each = static_cast<__mmask8>(-1);
  const __m512i pairs = _mm512_maskz_cvtepu8_epi64(each, bytes);
  const __m512i lanes = _mm512_or_si512(pairs, _mm512_maskz_slli_epi64(each, pairs, 28));
  return reinterpret_cast<Vector>(
      _mm512_maskz_permutexvar_ps(static_cast<__mmask16>(-1), lanes, reinterpret_cast<__m512>(from.numbers)));
#elif defined(__AVX2__)
  int four;
  __builtin_memcpy(&four, from.bytes, sizeof(four));
  four ^= static_cast<int>(from.flip * 0x01010101u);
  const __m256i pairs = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
  const __m256i lanes = _mm256_or_si256(pairs, _mm256_slli_epi64(pairs, 28));
  return reinterpret_cast<Vector>(_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(lanes, 28), 28)));
#else
  Vector numbers;
  for (int i = 0; i < kLanes; ++i) {
    const int bits = (from.bytes[i / 2] ^ from.flip) >> i % 2 * 4 & 15;
    numbers[i] = static_cast<float>((bits ^ 8) - 8);
  }
  return numbers;
#endif
}

// Two vectors of weights: those of four bits take fewer instructions so, first the ones with even numbers, then those
// with odd ones.
template <typename P>
constexpr bool kIsPaired = std::is_same_v<P, FourBits>;

// Whether they are looked up, in numbers that may be scaled.
#if defined(__AVX512F__)
template <typename P>
constexpr bool kHasNumbers = kIsPaired<P>;
#else
template <typename P>
constexpr bool kHasNumbers = false;
#endif

struct Pair {
  Vector first, second;
};

template <typename P>
HLO_DISPATCH_INLINE Pair WidenedPair(P from) {
  if constexpr (!kIsPaired<P>) {
    return {Widened(from), Widened(from + kLanes)};
  } else {
#if defined(__AVX512F__)
    const auto all = static_cast<__mmask16>(-1);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.bytes));
    const __m512i lanes = _mm512_maskz_cvtepu8_epi32(all, bytes);
    const __m512 numbers = reinterpret_cast<__m512>(from.numbers);
    return {
        reinterpret_cast<Vector>(_mm512_maskz_permutexvar_ps(all, lanes, numbers)),
        reinterpret_cast<Vector>(_mm512_maskz_permutexvar_ps(all, _mm512_maskz_srli_epi32(all, lanes, 4), numbers))};
#else
    Bits lanes;
    for (int i = 0; i < kLanes; ++i) lanes[i] = from.bytes[i] ^ from.flip;
    return {__builtin_convertvector(lanes << 28 >> 28, Vector), __builtin_convertvector(lanes << 24 >> 28, Vector)};
#endif
  }
}

// What lies behind one another as such a pair, and the other way round.
template <typename P>
HLO_DISPATCH_INLINE Pair LoadPair(const float* from) {
  const Vector a = Load(from), b = Load(from + kLanes);
  if constexpr (!kIsPaired<P>) return {a, b};
  Bits even;
  for (int i = 0; i < kLanes; ++i) even[i] = 2 * i;
  return {__builtin_shuffle(a, b, even), __builtin_shuffle(a, b, even + 1)};
}

HLO_DISPATCH_INLINE void StoreInOrder(float* to, Pair pair) {
  Bits low;
  for (int i = 0; i < kLanes; ++i) low[i] = i / 2 + i % 2 * kLanes;
  Store(to, __builtin_shuffle(pair.first, pair.second, low));
  Store(to + kLanes, __builtin_shuffle(pair.first, pair.second, low + kLanes / 2));
}

// The same of `count` weights, and 0 behind them, where no more may be read.
template <typename W>
HLO_DISPATCH_INLINE Vector WidenedFirst(const W* from, int64_t count) {
  W weights[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) weights[i] = from[i];
  return Widened(weights);
}

HLO_DISPATCH_INLINE Vector WidenedFirst(FourBits from, int64_t count) {
  uint8_t bytes[kLanes / 2] = {};
  for (int64_t i = 0; 2 * i < count; ++i) bytes[i] = from.bytes[i];
  from.bytes = bytes;
  return Widened(from);
}

template <typename P>
HLO_DISPATCH_INLINE P WeightsAt(const void* address, const Panel& panel) {
  if constexpr (std::is_pointer_v<P>)
    return static_cast<P>(address);
  else
    return P::At(address, panel.weights_flip);
}

template <typename P>
HLO_DISPATCH_INLINE P WeightsOf(const Panel& panel) {
  return WeightsAt<P>(panel.weights, panel);
}

HLO_DISPATCH_INLINE const float* SourceOf(const Panel& panel) { return static_cast<const float*>(panel.source); }

// Fetches a factor once: the compiler would do so in each of its products.
#if defined(__AVX512F__)
#define HLO_DISPATCH_IN_REGISTER(vector) asm("" : "+v"(vector))
#else
#define HLO_DISPATCH_IN_REGISTER(vector) asm("" : "+x"(vector))
#endif

// Bytes of so many weights.
template <typename P>
constexpr int64_t BytesOf(int64_t count) {
  return count * kLine / kPerLine<P>;
}

// Each lane the total of another vector. Of each two, which share a vector then, lanes are added that lie `step` apart.
template <int step = kLanes / 2>
HLO_DISPATCH_INLINE Vector TotalsOf(Vector (&vectors)[kLanes]) {
  Bits straight, across;
  for (int i = 0; i < kLanes; ++i) {
    straight[i] = i & step ? kLanes + i : i;
    across[i] = (i & step ? kLanes + i : i) ^ step;
  }
  for (int i = 0; i < step; ++i) {
    vectors[i] = __builtin_shuffle(vectors[i], vectors[i + step], straight) +
                 __builtin_shuffle(vectors[i], vectors[i + step], across);
  }
  if constexpr (step == 1) {
    return vectors[0];
  } else {
    return TotalsOf<step / 2>(vectors);
  }
}

template <typename W>
HLO_DISPATCH_INLINE const void* Address(const W* weights) {
  return weights;
}
HLO_DISPATCH_INLINE const void* Address(FourBits weights) { return weights.bytes; }

// Whether a whole vector may be read there.
template <typename P>
HLO_DISPATCH_INLINE bool IsWhole(P weights, const Panel& panel) {
  return static_cast<const char*>(panel.end) - static_cast<const char*>(Address(weights)) >= BytesOf<P>(kLanes);
}

// Of the group that a row of weights is in, from some column on.
HLO_DISPATCH_INLINE const float* ScalesAt(const Panel& panel, int64_t k, int64_t column) {
  return panel.scales + k / panel.group * panel.scales_row_stride + column * panel.scales_column_stride;
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_WEIGHTS_H_
