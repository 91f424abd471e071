// Searches in sorted arrays.
#include "counting/arithmetic.h"

#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::counting {
namespace {

// Numbers whose intervals are found at once, by vectors.
constexpr int64_t kBlock = 256;

template <typename T>
void Number(const Intervals& intervals, const void* source, int64_t count, int32_t* to) {
  const auto* from = static_cast<const T*>(source);
  const T lowest = static_cast<T>(intervals.lowest), scale = static_cast<T>(intervals.scale);
  const T last = static_cast<T>(intervals.last);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    T place = (from[i] - lowest) * scale;
    place = place > 0 ? place : 0;  // NaN, too
    place = place < last ? place : last;
    to[i] = static_cast<int32_t>(place);
  }
}

// Whether a number of the array lies ahead of the place; NaN does not.
template <bool kRight, typename T>
HLO_DISPATCH_INLINE bool IsAhead(T of_array, T number) {
  if constexpr (kRight) return of_array <= number;
  if constexpr (!kRight) return of_array < number;
}

template <typename T, bool kRight, typename Place>
void PlaceAll(const Intervals& intervals, const void* source, int64_t count, void* destination) {
  const auto* from = static_cast<const T*>(source);
  const auto* sorted = static_cast<const T*>(intervals.sorted);
  auto* to = static_cast<Place*>(destination);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int32_t number[kBlock];
    const int64_t size = count - begin < kBlock ? count - begin : kBlock;
    Number<T>(intervals, from + begin, size, number);
    for (int64_t i = 0; i < size; ++i) {
      const T wanted = from[begin + i];
      int64_t place = intervals.starts[number[i]];
      for (int64_t step = intervals.step; step > 0; step >>= 1) {
        place += step & -static_cast<int64_t>(IsAhead<kRight>(sorted[place + step - 1], wanted));
      }
      to[begin + i] = static_cast<Place>(wanted == wanted ? place : intervals.of_nan);
    }
  }
}

// Numbers that are searched side by side: a step of one waits for the step before it.
constexpr int64_t kSideBySide = 8;

template <typename T, bool kRight, typename Place>
void BisectAll(const Bisection& bisection, const void* source, int64_t count, void* destination) {
  const auto* from = static_cast<const T*>(source);
  const auto* sorted = static_cast<const T*>(bisection.sorted);
  auto* to = static_cast<Place*>(destination);
  for (int64_t begin = 0; begin < count; begin += kSideBySide) {
    const int64_t size = count - begin < kSideBySide ? count - begin : kSideBySide;
    T wanted[kSideBySide] = {};
    int64_t low[kSideBySide], high[kSideBySide];
    for (int64_t i = 0; i < size; ++i) wanted[i] = from[begin + i];
    for (int64_t i = 0; i < kSideBySide; ++i) low[i] = 0, high[i] = bisection.size;
    for (int64_t step = 0; step < bisection.steps; ++step) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < kSideBySide; ++i) {
        const int64_t middle = low[i] + (high[i] - low[i]) / 2;
        const T found = sorted[middle];
        // NaN lies behind all numbers. Without branches, half of which would be foreseen.
        const bool is_behind = kRight ? (found != found) & (wanted[i] == wanted[i]) : found != found;
        const bool is_left = (kRight ? wanted[i] < found : wanted[i] <= found) | is_behind;
        const int64_t left = -static_cast<int64_t>(is_left);
        low[i] = (low[i] & left) | (middle & ~left);
        high[i] = (middle & left) | (high[i] & ~left);
      }
    }
    for (int64_t i = 0; i < size; ++i) to[begin + i] = static_cast<Place>(high[i]);
  }
}

template <typename T>
constexpr Searches SearchesOf() {
  return {Number<T>,
          {{PlaceAll<T, false, uint32_t>, PlaceAll<T, false, uint64_t>},
           {PlaceAll<T, true, uint32_t>, PlaceAll<T, true, uint64_t>}},
          {{BisectAll<T, false, uint32_t>, BisectAll<T, false, uint64_t>},
           {BisectAll<T, true, uint32_t>, BisectAll<T, true, uint64_t>}}};
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, SearchesOf<float>(), SearchesOf<double>()};
}

}  // namespace hlo_dispatch::counting
