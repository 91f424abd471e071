// Places of maxima and minima.
#include <cstdint>
#include <limits>
#include <type_traits>

#include "reductions/arithmetic.h"
#include "reductions/elements.h"

namespace hlo_dispatch::reductions {
namespace {

// Vectors at once: a maximum takes as long as several reads.
constexpr int kVectors = 8;
// Numbers of which only the best is kept, with the block's number: it is read once more for the place. Many, since what
// is kept is compared for each block, and few, since half of one is searched.
constexpr int64_t kBlock = 1024;

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

// --- of vectors, in AVX-512 by instructions that GCC does not find for comparisons ---

// The better one of each lane, `b` where `a` is NaN.
template <bool kSmallest, typename T, typename V>
HLO_DISPATCH_INLINE V BetterOf(V a, V b) {
#ifdef __AVX512F__
  if constexpr (std::is_same_v<T, float>) {
    const auto x = reinterpret_cast<__m512>(a), y = reinterpret_cast<__m512>(b);
    const auto all = static_cast<__mmask16>(-1);
    return reinterpret_cast<V>(kSmallest ? _mm512_maskz_min_ps(all, x, y) : _mm512_maskz_max_ps(all, x, y));
  } else if constexpr (std::is_same_v<T, double>) {
    const auto x = reinterpret_cast<__m512d>(a), y = reinterpret_cast<__m512d>(b);
    const auto all = static_cast<__mmask8>(-1);
    return reinterpret_cast<V>(kSmallest ? _mm512_maskz_min_pd(all, x, y) : _mm512_maskz_max_pd(all, x, y));
  } else {
    const auto x = reinterpret_cast<__m512i>(a), y = reinterpret_cast<__m512i>(b);
    const auto all = static_cast<__mmask16>(-1);
    return reinterpret_cast<V>(kSmallest ? _mm512_maskz_min_epi32(all, x, y) : _mm512_maskz_max_epi32(all, x, y));
  }
#else
  return Better<kSmallest>(a, b);
#endif
}

// A bit for each lane in which the numbers are equal.
template <typename T, typename V>
HLO_DISPATCH_INLINE uint32_t LanesEqual(V a, V b) {
#ifdef __AVX512F__
  if constexpr (std::is_same_v<T, float>)
    return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_EQ_OQ);
  else if constexpr (std::is_same_v<T, double>)
    return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), _CMP_EQ_OQ);
  else
    return _mm512_cmpeq_epi32_mask(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b));
#else
  return LanesOf<sizeof(T)>(a == b);
#endif
}

// A bit for each lane in which `a` or `b` is NaN.
template <typename T, typename V>
HLO_DISPATCH_INLINE uint32_t LanesUnordered(V a, V b) {
#ifdef __AVX512F__
  if constexpr (std::is_same_v<T, float>)
    return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_UNORD_Q);
  else if constexpr (std::is_same_v<T, double>)
    return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), _CMP_UNORD_Q);
#else
  if constexpr (kHasNan<T>) return LanesOf<sizeof(T)>((a != a) | (b != b));
#endif
  return 0;
}

// Whether there is NaN in vectors.
template <typename T>
struct Unordered {
#ifdef __AVX512F__
  uint32_t lanes = 0;
  template <typename V>
  HLO_DISPATCH_INLINE void Add(V a, V b) {
    lanes |= LanesUnordered<T>(a, b);
  }
  HLO_DISPATCH_INLINE bool Any() const { return lanes != 0; }
#else
  Bits lanes{};
  template <typename V>
  HLO_DISPATCH_INLINE void Add(V a, V b) {
    if constexpr (kHasNan<T>) lanes |= reinterpret_cast<Bits>(a != a) | reinterpret_cast<Bits>(b != b);
  }
  HLO_DISPATCH_INLINE bool Any() const { return HasAny(lanes); }
#endif
};

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

// Of numbers side by side, as far as vectors of them go: the last one takes some once more where they end within one,
// which changes neither the best nor the first place of it.
template <typename Type>
struct Vectors {
  using Number = typename Type::Number;
  using Vector = typename Type::Vector;
  static constexpr auto kCount = static_cast<int64_t>(sizeof(Vector) / sizeof(Number));

  // Calls several(begin) for each kVectors of them, then one(begin) for each that is left; both say whether to go on.
  template <typename Several, typename One>
  static HLO_DISPATCH_INLINE void ForEach(int64_t begin, int64_t end, const Several& several, const One& one) {
    for (; begin + kVectors * kCount <= end; begin += kVectors * kCount) {
      if (!several(begin)) return;
    }
    for (; begin + kCount <= end; begin += kCount) {
      if (!one(begin)) return;
    }
    if (begin < end) one(end - kCount);
  }
};

// The best of each lane, and whether there is NaN.
template <typename Type>
struct BestOfLanes {
  typename Type::Vector peaks;
  bool has_nan;
};

// Of [begin, end), where `end` is at least a vector of numbers behind the first one.
template <typename Type, bool kSmallest>
HLO_DISPATCH_INLINE BestOfLanes<Type> BestOf(const typename Type::Element* from, int64_t begin, int64_t end) {
  using Number = typename Type::Number;
  using Vector = typename Type::Vector;
  constexpr auto kCount = Vectors<Type>::kCount;
  Vector peaks[kVectors];
  for (Vector& peak : peaks) peak = kWorst<kSmallest, Number> - Vector{};
  Unordered<Number> unordered;
  Vectors<Type>::ForEach(
      begin, end,
      [&](int64_t place) __attribute__((always_inline)) {
        for (int i = 0; i < kVectors; i += 2) {
          const Vector one = Type::Read(from + place + i * kCount), other = Type::Read(from + place + (i + 1) * kCount);
          peaks[i] = BetterOf<kSmallest, Number>(one, peaks[i]);
          peaks[i + 1] = BetterOf<kSmallest, Number>(other, peaks[i + 1]);
          unordered.Add(one, other);
        }
        return true;
      },
      [&](int64_t place) __attribute__((always_inline)) {
        const Vector value = Type::Read(from + place);
        peaks[0] = BetterOf<kSmallest, Number>(value, peaks[0]);
        unordered.Add(value, value);
        return true;
      });
  for (int step = kVectors / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) peaks[i] = BetterOf<kSmallest, Number>(peaks[i + step], peaks[i]);
  }
  return {peaks[0], unordered.Any()};
}

// The first place of those that `lanes`, a bit for each lane of a vector, says of; it is known to be there.
template <typename Type, typename Lanes>
HLO_DISPATCH_INLINE int64_t FirstPlace(const typename Type::Element* from, int64_t begin, int64_t end,
                                       const Lanes& lanes) {
  constexpr auto kCount = Vectors<Type>::kCount;
  int64_t found = begin;
  const auto is_not_in = [&](int64_t place) __attribute__((always_inline)) {
    const uint32_t bits = lanes(Type::Read(from + place));
    if (bits != 0) found = place + __builtin_ctz(bits);
    return bits == 0;
  };
  Vectors<Type>::ForEach(
      begin, end,
      [&](int64_t place) __attribute__((always_inline)) {
        uint32_t any = 0;
        for (int i = 0; i < kVectors; ++i) any |= lanes(Type::Read(from + place + i * kCount));
        if (any == 0) return true;
        for (int i = 0; i < kVectors && is_not_in(place + i * kCount); ++i) continue;
        return false;
      },
      is_not_in);
  return found;
}

// Of less than a vector.
template <typename Type, bool kSmallest>
HLO_DISPATCH_INLINE int64_t FirstOfFew(const typename Type::Element* from, int64_t count) {
  int64_t place = 0;
  for (int64_t i = 1; i < count; ++i) {
    const auto best = Type::ReadOne(from + place), value = Type::ReadOne(from + i);
    if (IsNan(best)) break;
    if (IsNan(value) || IsBetter<kSmallest>(value, best)) place = i;
  }
  return place;
}

template <typename Type, bool kSmallest>
HLO_DISPATCH_INLINE int64_t PlaceOfBest(const typename Type::Element* from, int64_t count) {
  using Number = typename Type::Number;
  using Vector = typename Type::Vector;
  using Places = decltype(Vector{} == Vector{});
  using Place = std::remove_reference_t<decltype(Places{}[0])>;
  if (count < Vectors<Type>::kCount) return FirstOfFew<Type, kSmallest>(from, count);
  // Of each lane; places count blocks.
  Vector bests = kWorst<kSmallest, Number> - Vector{};
  Places places{};
  for (int64_t begin = 0, block = 0; begin < count; begin += kBlock, ++block) {
    const int64_t end = count - begin < kBlock ? count : begin + kBlock;
    const auto found = BestOf<Type, kSmallest>(from, begin, end);
    if (found.has_nan) {
      return FirstPlace<Type>(from, begin, end, [](Vector value) __attribute__((always_inline)) {
        return LanesUnordered<Number>(value, value);
      });
    }
    const Places is_better = IsBetter<kSmallest>(found.peaks, bests);
    bests = is_better ? found.peaks : bests;
    places = is_better ? static_cast<Place>(block) - Places{} : places;
  }
  const Number best = BestLane<kSmallest>(bests);
  int64_t block = 0;
  if (count > kBlock) {
    const Places others = std::numeric_limits<Place>::max() - Places{};
    block = BestLane<true>(bests == best - Vector{} ? places : others);
  }
  const int64_t begin = block * kBlock;
  return FirstPlace<Type>(from, begin, count - begin < kBlock ? count : begin + kBlock,
                          [&](Vector value)
                              __attribute__((always_inline)) { return LanesEqual<Number>(value, best - Vector{}); });
}

template <typename Type, bool kSmallest>
Peak FirstOfBest(const void* source, int64_t count) {
  const auto* from = static_cast<const typename Type::Element*>(source);
  const int64_t place = PlaceOfBest<Type, kSmallest>(from, count);
  return {static_cast<double>(Type::ReadOne(from + place)), place};
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
