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

template <typename T, bool kRight, typename Place>
void BisectAll(const Bisection& bisection, const void* source, int64_t count, void* destination) {
  const auto* from = static_cast<const T*>(source);
  const auto* sorted = static_cast<const T*>(bisection.sorted);
  auto* to = static_cast<Place*>(destination);
  for (int64_t i = 0; i < count; ++i) {
    const T wanted = from[i];
    int64_t low = 0, high = bisection.size;
    for (int64_t step = 0; step < bisection.steps; ++step) {
      const int64_t middle = low + (high - low) / 2;
      const T found = sorted[middle];
      // NaN lies behind all numbers.
      const bool is_left =
          kRight ? wanted < found || (found != found && wanted == wanted) : wanted <= found || found != found;
      low = is_left ? low : middle;
      high = is_left ? middle : high;
    }
    to[i] = static_cast<Place>(high);
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
