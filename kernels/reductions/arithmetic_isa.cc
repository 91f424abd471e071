// Places of maxima and minima.
#include <cstdint>
#include <limits>
#include <type_traits>

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
constexpr int kVectors = 8;
// Numbers among which the best is searched once more: many, since comparing the lanes of a vector takes long, and as
// few as the first cache holds.
constexpr int64_t kBlock = 4096;

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

// Whether there is NaN in vectors.
template <typename T>
struct Unordered {
#ifdef __AVX512F__
  unsigned lanes = 0;
  template <typename V>
  HLO_DISPATCH_INLINE void Add(V a, V b) {
    if constexpr (std::is_same_v<T, float>) {
      lanes |= _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_UNORD_Q);
    } else if constexpr (std::is_same_v<T, double>) {
      lanes |= _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), _CMP_UNORD_Q);
    }
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
  for (Vector& peak : peaks) peak = kWorst<kSmallest, Number> - Vector{};
  Unordered<Number> unordered;
  int64_t begin = 0;
  for (; begin + kVectors * kCount <= count; begin += kVectors * kCount) {
    for (int i = 0; i < kVectors; i += 2) {
      const Vector one = Type::Read(from + begin + i * kCount), other = Type::Read(from + begin + (i + 1) * kCount);
      peaks[i] = BetterOf<kSmallest, Number>(one, peaks[i]);
      peaks[i + 1] = BetterOf<kSmallest, Number>(other, peaks[i + 1]);
      unordered.Add(one, other);
    }
  }
  for (; begin + kCount <= count; begin += kCount) {
    const Vector value = Type::Read(from + begin);
    peaks[0] = BetterOf<kSmallest, Number>(value, peaks[0]);
    unordered.Add(value, value);
  }
  for (int i = 1; i < kVectors; ++i) peaks[0] = BetterOf<kSmallest, Number>(peaks[i], peaks[0]);
  Number peak = BestLane<kSmallest>(peaks[0]);
  bool has_nan = unordered.Any();
  for (; begin < count; ++begin) {
    const Number value = Type::ReadOne(from + begin);
    has_nan |= IsNan(value);
    peak = Better<kSmallest>(value, peak);
  }
  return {peak, has_nan};
}

// The first place, of those that are known to be there, of a number or of NaN.
template <typename Type>
HLO_DISPATCH_INLINE int64_t FirstPlace(const typename Type::Element* from, int64_t count,
                                       const Found<typename Type::Number>& best) {
  using Number = typename Type::Number;
  using Vector = typename Type::Vector;
  constexpr auto kCount = static_cast<int64_t>(sizeof(Vector) / sizeof(Number));
  int64_t place = 0;
  for (; place + kCount <= count; place += kCount) {
    const Vector value = Type::Read(from + place);
    const auto equal = best.has_nan ? value != value : value == best.value - Vector{};
    if (HasAny(reinterpret_cast<Bits>(equal))) break;
  }
  for (;; ++place) {
    const Number value = Type::ReadOne(from + place);
    if (best.has_nan ? IsNan(value) : value == best.value) return place;
  }
}

template <typename Type, bool kSmallest>
Peak FirstOfBest(const void* source, int64_t count) {
  using Number = typename Type::Number;
  const auto* from = static_cast<const typename Type::Element*>(source);
  Found<Number> best{kWorst<kSmallest, Number>, false};
  int64_t place = 0;
  for (int64_t begin = 0; begin < count && !best.has_nan; begin += kBlock) {
    const auto found = BestOf<Type, kSmallest>(from + begin, count - begin < kBlock ? count - begin : kBlock);
    if (!found.has_nan && !IsBetter<kSmallest>(found.value, best.value)) continue;
    best = found, place = begin;
  }
  // The block is known, the place in it not yet.
  place += FirstPlace<Type>(from + place, count - place, best);
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
