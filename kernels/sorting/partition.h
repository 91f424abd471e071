// Vectors divided into what is at most a bound and what is above it. Of *_isa.cc, for AVX2 and AVX-512.
#ifndef HLO_DISPATCH_SORTING_PARTITION_H_
#define HLO_DISPATCH_SORTING_PARTITION_H_

#include <array>
#include <cstdint>

#include "common/vectors.h"
#include "sorting/vector_network.h"

namespace hlo_dispatch::sorting {
namespace {

// Vectors that are looked at before any of them is written.
constexpr int kTogether = 4;

#ifdef __AVX512F__

// The lanes of a vector that are above a bound.
template <typename T>
HLO_DISPATCH_INLINE uint32_t Above(ValueOf<T> value, ValueOf<T> bound) {
  if constexpr (sizeof(T) == 4) {
    return _mm512_cmpgt_epi32_mask(reinterpret_cast<__m512i>(value), reinterpret_cast<__m512i>(bound));
  } else {
    return _mm512_cmpgt_epi64_mask(reinterpret_cast<__m512i>(value), reinterpret_cast<__m512i>(bound));
  }
}

// Writes a vector's lanes that are not above the bound from `low` on, with any others behind them, and those that are
// above it ahead of `high`.
template <typename T>
HLO_DISPATCH_INLINE void Divide(ValueOf<T> value, uint32_t above, int count, T* low, T* high) {
  const auto vector = reinterpret_cast<__m512i>(value);
  const auto first = (1u << count) - 1;
  if constexpr (sizeof(T) == 4) {
    _mm512_storeu_si512(low, _mm512_maskz_compress_epi32(static_cast<__mmask16>(~above), vector));
    _mm512_mask_storeu_epi32(high - count, static_cast<__mmask16>(first),
                             _mm512_maskz_compress_epi32(static_cast<__mmask16>(above), vector));
  } else {
    _mm512_storeu_si512(low, _mm512_maskz_compress_epi64(static_cast<__mmask8>(~above), vector));
    _mm512_mask_storeu_epi64(high - count, static_cast<__mmask8>(first),
                             _mm512_maskz_compress_epi64(static_cast<__mmask8>(above), vector));
  }
}

#else

template <typename T>
HLO_DISPATCH_INLINE uint32_t Above(ValueOf<T> value, ValueOf<T> bound) {
  const auto above = reinterpret_cast<__m256i>(value > bound);
  if constexpr (sizeof(T) == 4) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(above)));
  } else {
    return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(above)));
  }
}

// For each set of lanes the places of the others, and behind them their own; in lanes of 32 bits.
template <typename T>
constexpr auto Permutations() {
  std::array<std::array<uint8_t, 8>, 1 << kCount<T>> found{};
  constexpr int kWords = sizeof(T) / 4;
  for (unsigned set = 0; set < found.size(); ++set) {
    int place = 0;
    for (unsigned wanted = 0; wanted < 2; ++wanted) {
      for (int lane = 0; lane < kCount<T>; ++lane) {
        if ((set >> lane & 1) != wanted) continue;
        for (int word = 0; word < kWords; ++word) found[set][place++] = static_cast<uint8_t>(lane * kWords + word);
      }
    }
  }
  return found;
}
template <typename T>
constexpr auto kPermutations = Permutations<T>();

// Likewise, but with any others ahead of those that are above it.
template <typename T>
HLO_DISPATCH_INLINE void Divide(ValueOf<T> value, uint32_t above, int, T* low, T* high) {
  const auto places =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kPermutations<T>[above].data())));
  const auto divided =
      reinterpret_cast<ValueOf<T>>(_mm256_permutevar8x32_epi32(reinterpret_cast<__m256i>(value), places));
  StoreOf(low, divided);
  StoreOf(high - kCount<T>, divided);
}

#endif

// Elements up to the bound stay at the begin of `elements`, the rest is moved to the same places of `spare` as they
// would have here. Returns how many stay.
template <typename T>
int64_t Partition(T* elements, T* spare, int64_t count, T bound) {
  constexpr int lanes = kCount<T>;
  const ValueOf<T> bounds = bound - ValueOf<T>{};
  // What is written is read already: both ends have place for a whole vector.
  T *low = elements, *high = spare + count;
  int64_t i = 0;
  const auto divide = [&](ValueOf<T> value) __attribute__((always_inline)) {
    const uint32_t above = Above<T>(value, bounds);
    const int moved = __builtin_popcount(above);
    Divide<T>(value, above, moved, low, high);
    low += lanes - moved;
    high -= moved;
  };
  for (; i + kTogether * lanes <= count; i += kTogether * lanes) {
    ValueOf<T> values[kTogether];
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; ++k) values[k] = LoadOf(elements + i + k * lanes);
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; ++k) divide(values[k]);
  }
  for (; i + lanes <= count; i += lanes) divide(LoadOf(elements + i));
  for (; i < count; ++i) {
    const T element = elements[i];
    const bool stays = element <= bound;
    *(stays ? low : high - 1) = element;
    low += stays;
    high -= !stays;
  }
  return low - elements;
}

}  // namespace
}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_PARTITION_H_
