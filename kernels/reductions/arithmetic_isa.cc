// Places of maxima and minima.
#include <cstdint>
#include <limits>

#include "common/vectors.h"
#include "reductions/arithmetic.h"

namespace hlo_dispatch::reductions {
namespace {

// Numbers as they are in memory and in vectors.
template <typename T>
struct Same {
  using Number = T;
  typedef T Element __attribute__((may_alias, aligned(1)));
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  static HLO_DISPATCH_INLINE Vector Read(const Element* from) {
    typedef T Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
    return *reinterpret_cast<const Anywhere*>(from);
  }
  static HLO_DISPATCH_INLINE T ReadOne(const Element* from) { return *from; }
};

struct Half {
  using Number = float;
  using Element = AnyHalf;
  using Vector = Same<float>::Vector;
  static HLO_DISPATCH_INLINE Vector Read(const Element* from) { return LoadBf16(reinterpret_cast<const char*>(from)); }
  static HLO_DISPATCH_INLINE float ReadOne(const Element* from) { return FromBf16(*from); }
};

// Vectors at once: a maximum takes as long as several reads.
constexpr int kVectors = 4;

template <bool kSmallest, typename T>
HLO_DISPATCH_INLINE auto IsBetter(T a, T b) {
  if constexpr (kSmallest) return a < b;
  if constexpr (!kSmallest) return a > b;
}

template <bool kSmallest, typename T>
HLO_DISPATCH_INLINE T Better(T a, T b) {
  return IsBetter<kSmallest>(a, b) ? a : b;
}

// What no number is worse than.
template <bool kSmallest, typename T>
constexpr T Worst() {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity) return kSmallest ? Limits::infinity() : -Limits::infinity();
  return kSmallest ? Limits::max() : Limits::lowest();
}

template <bool kSmallest, typename T>
constexpr T kWorst = Worst<kSmallest, T>();

template <typename T>
constexpr bool kHasNan = std::numeric_limits<T>::has_quiet_NaN;

template <typename T>
HLO_DISPATCH_INLINE bool IsNan(T value) {
  if constexpr (kHasNan<T>) return value != value;
  return false;
}

template <bool kSmallest, typename V, int step = sizeof(V{}) / sizeof(V{}[0]) / 2>
HLO_DISPATCH_INLINE auto BestLane(V value) {
  decltype(value == value) places;
  for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(value[0])); ++i) places[i] = i ^ step;
  value = Better<kSmallest>(value, __builtin_shuffle(value, places));
  if constexpr (step == 1)
    return value[0];
  else
    return BestLane<kSmallest, V, step / 2>(value);
}

template <typename Number>
struct Found {
  Number value;
  bool has_nan;
};

// The best of a block, where none of its numbers is NaN.
template <typename Type, bool kSmallest>
HLO_DISPATCH_INLINE Found<typename Type::Number> BestOf(const typename Type::Element* from, int64_t count) {
  using Number = typename Type::Number;
  using Vector = typename Type::Vector;
  constexpr auto kCount = static_cast<int64_t>(sizeof(Vector) / sizeof(Number));
  Vector peaks[kVectors];
  Bits unordered[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    peaks[i] = kWorst<kSmallest, Number> - Vector{};
    unordered[i] = Bits{};
  }
  const auto add = [&](int i, Vector value) __attribute__((always_inline)) {
    peaks[i] = Better<kSmallest>(value, peaks[i]);
    if constexpr (kHasNan<Number>) unordered[i] |= reinterpret_cast<Bits>(value != value);
  };
  int64_t begin = 0;
  for (; begin + kVectors * kCount <= count; begin += kVectors * kCount) {
    for (int i = 0; i < kVectors; ++i) add(i, Type::Read(from + begin + i * kCount));
  }
  for (; begin + kCount <= count; begin += kCount) add(0, Type::Read(from + begin));
  for (int i = 1; i < kVectors; ++i) {
    peaks[0] = Better<kSmallest>(peaks[0], peaks[i]);
    unordered[0] |= unordered[i];
  }
  Number peak = BestLane<kSmallest>(peaks[0]);
  bool has_nan = HasAny(unordered[0]);
  for (; begin < count; ++begin) {
    const Number value = Type::ReadOne(from + begin);
    has_nan |= IsNan(value);
    peak = Better<kSmallest>(value, peak);
  }
  return {peak, has_nan};
}

template <typename Type, bool kSmallest>
Peak FirstOfBest(const void* source, int64_t count) {
  using Number = typename Type::Number;
  // Numbers among which the best is searched once more, element by element.
  constexpr int64_t kBlock = 16 * kVectors * kLanes;
  const auto* from = static_cast<const typename Type::Element*>(source);
  Found<Number> best{kWorst<kSmallest, Number>, false};
  int64_t place = 0;
  for (int64_t begin = 0; begin < count && !best.has_nan; begin += kBlock) {
    const auto found = BestOf<Type, kSmallest>(from + begin, count - begin < kBlock ? count - begin : kBlock);
    if (!found.has_nan && !IsBetter<kSmallest>(found.value, best.value)) continue;
    best = found, place = begin;
  }
  // The block is known, the place in it not yet.
  for (;; ++place) {
    const Number value = Type::ReadOne(from + place);
    if (best.has_nan ? IsNan(value) : value == best.value) return {static_cast<double>(value), place};
  }
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME,
                                {{FirstOfBest<Same<float>, false>, FirstOfBest<Same<float>, true>},
                                 {FirstOfBest<Same<double>, false>, FirstOfBest<Same<double>, true>},
                                 {FirstOfBest<Half, false>, FirstOfBest<Half, true>},
                                 {FirstOfBest<Same<int32_t>, false>, FirstOfBest<Same<int32_t>, true>}}};
}

}  // namespace hlo_dispatch::reductions
