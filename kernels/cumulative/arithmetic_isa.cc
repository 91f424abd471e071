// Cumulative sums, products, maxima and minima.
//
// Sums of floats keep what each addition to the total rounds off, and add it to every result: a line of a million
// elements is as exact as one of a few, where no sum of a part overflows. Products, whose order decides whether they
// overflow on the way, are computed one after the other, in f64.
#include <cstdint>

#include "common/vectors.h"
#include "cumulative/arithmetic.h"

namespace hlo_dispatch::cumulative {
namespace {

// Columns whose totals are kept in the first cache.
constexpr int64_t kColumns = 1024;
// Lines at once where each element waits for the one before it.
constexpr int64_t kLines = 4;

template <typename T>
struct Wide {
  static constexpr int kCount = kVectorBytes / sizeof(T);
  typedef T Value __attribute__((vector_size(kVectorBytes)));
  typedef T Unaligned __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  using Index = decltype(Value{} == Value{});

  static HLO_DISPATCH_INLINE Value Load(const T* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static HLO_DISPATCH_INLINE void Store(T* to, Value value) { *reinterpret_cast<Unaligned*>(to) = value; }
  static HLO_DISPATCH_INLINE Value Repeated(T value) {
    Value all;
    for (int i = 0; i < kCount; ++i) all[i] = value;
    return all;
  }
  static HLO_DISPATCH_INLINE Value LaneRepeated(Value value, int lane) {
    Index places;
    for (int i = 0; i < kCount; ++i) places[i] = lane;
    return __builtin_shuffle(value, places);
  }
  // Each lane is that which lies `step` before it, or behind it; those without one are `filling`.
  template <int step, bool kReversed>
  static HLO_DISPATCH_INLINE Value Moved(Value value, Value filling) {
    Index places;
    for (int i = 0; i < kCount; ++i) {
      const int place = kReversed ? i + step : i - step;
      places[i] = place >= 0 && place < kCount ? place : kCount + i;
    }
    return __builtin_shuffle(value, filling, places);
  }
};

template <typename T>
constexpr bool kIsFloat = static_cast<T>(0.5f) != T{};

struct Add {
  template <typename T>
  static constexpr bool kKeepsRest = kIsFloat<T>;
  template <typename T>
  static constexpr T Neutral() {
    return T{};
  }
  template <typename V>
  static HLO_DISPATCH_INLINE V Applied(V earlier, V later) {
    return earlier + later;
  }
};

struct Multiply {
  template <typename T>
  static constexpr bool kKeepsRest = false;
  template <typename T>
  static constexpr T Neutral() {
    return T{1};
  }
  template <typename V>
  static HLO_DISPATCH_INLINE V Applied(V earlier, V later) {
    return earlier * later;
  }
};

// NaN is larger than every number and smaller than every number.
template <bool kLargest>
struct Extreme {
  template <typename T>
  static constexpr bool kKeepsRest = false;
  template <typename T>
  static constexpr T Neutral() {
    if constexpr (kIsFloat<T>) {
      return static_cast<T>(kLargest ? -__builtin_inf() : __builtin_inf());
    } else {
      constexpr T largest = static_cast<T>(~uint32_t{0} >> 1);
      return kLargest ? static_cast<T>(-largest - 1) : largest;
    }
  }
  template <typename V>
  static HLO_DISPATCH_INLINE V Applied(V earlier, V later) {
    const auto stays = (kLargest ? earlier > later : earlier < later) | (earlier != earlier);
    return stays ? earlier : later;
  }
};
using Maximum = Extreme<true>;
using Minimum = Extreme<false>;

struct LogAddExp {
  template <typename T>
  static constexpr T Neutral() {
    return static_cast<T>(-__builtin_inf());
  }
  static HLO_DISPATCH_INLINE double Applied(double earlier, double later) {
    const double distance = earlier - later;
    if (distance != distance) return earlier + later;
    return (distance > 0 ? earlier : later) + __builtin_log1p(__builtin_exp(-__builtin_fabs(distance)));
  }
};

// --- totals, of numbers or of vectors of them: what was added up, and what that has rounded off --------------------

template <typename V>
struct Total {
  V sum, rest;
};

template <typename Op, typename T, typename V>
HLO_DISPATCH_INLINE void Include(Total<V>& total, V value) {
  if constexpr (Op::template kKeepsRest<T>) {
    const V sum = total.sum + value, added = sum - total.sum;
    const V rest = (total.sum - (sum - added)) + (value - added);
    total.rest += rest == rest ? rest : V{};  // of infinities there is none
    total.sum = sum;
  } else {
    total.sum = Op::Applied(total.sum, value);
  }
}

template <typename Op, typename T, typename V>
HLO_DISPATCH_INLINE V ValueOf(const Total<V>& total) {
  if constexpr (Op::template kKeepsRest<T>) return total.sum + total.rest;
  return total.sum;
}

template <typename Op, typename T>
void Start(void* carry) {
  auto& total = *static_cast<Total<T>*>(carry);
  total = {Op::template Neutral<T>(), T{}};
}

template <typename Op, typename T>
void Merge(void* carry, const void* following) {
  auto& total = *static_cast<Total<T>*>(carry);
  const auto& other = *static_cast<const Total<T>*>(following);
  Include<Op, T>(total, other.sum);
  total.rest += other.rest;
}

// --- lines in vectors: the elements of a vector in steps of 1, 2, 4 lanes, then the total before it -----------------

template <typename Op, typename T, bool kReversed, int step = 1>
HLO_DISPATCH_INLINE typename Wide<T>::Value Within(typename Wide<T>::Value value, typename Wide<T>::Value neutral) {
  value = Op::Applied(Wide<T>::template Moved<step, kReversed>(value, neutral), value);
  if constexpr (2 * step < Wide<T>::kCount) {
    return Within<Op, T, kReversed, 2 * step>(value, neutral);
  } else {
    return value;
  }
}

template <typename Op, typename T, bool kReversed, bool kWrites>
void Piece(const T* from, int64_t count, Total<T>& carry, T* to) {
  using W = Wide<T>;
  using V = typename W::Value;
  const V neutral = W::Repeated(Op::template Neutral<T>());
  Total<V> total{W::Repeated(carry.sum), W::Repeated(carry.rest)};
  int64_t done = 0;
  for (; done + W::kCount <= count; done += W::kCount) {
    const int64_t first = kReversed ? count - done - W::kCount : done;
    const V found = Within<Op, T, kReversed>(W::Load(from + first), neutral);
    if constexpr (kWrites) {
      if constexpr (Op::template kKeepsRest<T>) {
        W::Store(to + first, total.sum + (found + total.rest));
      } else {
        W::Store(to + first, Op::Applied(total.sum, found));
      }
    }
    Include<Op, T>(total, W::LaneRepeated(found, kReversed ? 0 : W::kCount - 1));
  }
  carry = {total.sum[0], total.rest[0]};
  for (; done < count; ++done) {
    const int64_t place = kReversed ? count - done - 1 : done;
    Include<Op, T>(carry, from[place]);
    if constexpr (kWrites) to[place] = ValueOf<Op, T>(carry);
  }
}

template <typename Op, typename T>
void AnyPiece(const void* source, int64_t count, bool is_reversed, void* carry, void* destination) {
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(destination);
  auto& total = *static_cast<Total<T>*>(carry);
  if (to == nullptr) {
    return is_reversed ? Piece<Op, T, true, false>(from, count, total, to)
                       : Piece<Op, T, false, false>(from, count, total, to);
  }
  return is_reversed ? Piece<Op, T, true, true>(from, count, total, to)
                     : Piece<Op, T, false, true>(from, count, total, to);
}

template <typename Op, typename T>
void Lines(const void* source, int64_t lines, int64_t count, bool is_reversed, void* destination) {
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(destination);
  for (int64_t line = 0; line < lines; ++line, from += count, to += count) {
    Total<T> carry;
    Start<Op, T>(&carry);
    AnyPiece<Op, T>(from, count, is_reversed, &carry, to);
  }
}

template <typename Op, typename T>
void Columns(const void* source, int64_t rows, int64_t columns, int64_t distance, void* destination) {
  using W = Wide<T>;
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(destination);
  T sums[kColumns], rests[kColumns];
  for (int64_t begin = 0; begin < columns; begin += kColumns) {
    const int64_t count = columns - begin < kColumns ? columns - begin : kColumns;
    for (int64_t i = 0; i < count; ++i) {
      sums[i] = Op::template Neutral<T>();
      rests[i] = T{};
    }
    for (int64_t row = 0; row < rows; ++row) {
      const T* read = from + row * distance + begin;
      T* written = to + row * distance + begin;
      int64_t i = 0;
      for (; i + W::kCount <= count; i += W::kCount) {
        Total<typename W::Value> total{W::Load(sums + i), W::Load(rests + i)};
        Include<Op, T>(total, W::Load(read + i));
        W::Store(written + i, ValueOf<Op, T>(total));
        W::Store(sums + i, total.sum);
        W::Store(rests + i, total.rest);
      }
      for (; i < count; ++i) {
        Total<T> total{sums[i], rests[i]};
        Include<Op, T>(total, read[i]);
        written[i] = ValueOf<Op, T>(total);
        sums[i] = total.sum;
        rests[i] = total.rest;
      }
    }
  }
}

// --- one element after the other, in f64 -------------------------------------------------------------------------

template <typename Op, typename T, int64_t kTogether>
HLO_DISPATCH_INLINE void Chains(const T* from, int64_t count, bool is_reversed, T* to) {
  double totals[kTogether];
  for (double& total : totals) total = Op::template Neutral<double>();
  for (int64_t done = 0; done < count; ++done) {
    const int64_t place = is_reversed ? count - done - 1 : done;
    for (int64_t line = 0; line < kTogether; ++line) {
      totals[line] = Op::Applied(totals[line], static_cast<double>(from[line * count + place]));
      to[line * count + place] = static_cast<T>(totals[line]);
    }
  }
}

template <typename Op, typename T>
void ChainedLines(const void* source, int64_t lines, int64_t count, bool is_reversed, void* destination) {
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(destination);
  int64_t line = 0;
  for (; line + kLines <= lines; line += kLines) {
    Chains<Op, T, kLines>(from + line * count, count, is_reversed, to + line * count);
  }
  for (; line < lines; ++line) Chains<Op, T, 1>(from + line * count, count, is_reversed, to + line * count);
}

template <typename Op, typename T>
void ChainedColumns(const void* source, int64_t rows, int64_t columns, int64_t distance, void* destination) {
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(destination);
  double totals[kColumns];
  for (int64_t begin = 0; begin < columns; begin += kColumns) {
    const int64_t count = columns - begin < kColumns ? columns - begin : kColumns;
    for (int64_t i = 0; i < count; ++i) totals[i] = Op::template Neutral<double>();
    for (int64_t row = 0; row < rows; ++row) {
      const T* __restrict read = from + row * distance + begin;
      T* __restrict written = to + row * distance + begin;
      for (int64_t i = 0; i < count; ++i) {
        totals[i] = Op::Applied(totals[i], static_cast<double>(read[i]));
        written[i] = static_cast<T>(totals[i]);
      }
    }
  }
}

template <typename Op, typename T>
constexpr Loops InVectors() {
  static_assert(sizeof(Total<T>) <= kCarryBytes);
  return {Lines<Op, T>, Columns<Op, T>, AnyPiece<Op, T>, Start<Op, T>, Merge<Op, T>};
}

template <typename Op, typename T>
constexpr Loops Chained() {
  return {ChainedLines<Op, T>, ChainedColumns<Op, T>, nullptr, nullptr, nullptr};
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {
    HLO_DISPATCH_ISA_NAME,
    {
        {InVectors<Add, float>(), InVectors<Add, double>(), InVectors<Add, uint32_t>(), InVectors<Add, uint64_t>()},
        {Chained<Multiply, float>(), Chained<Multiply, double>(), InVectors<Multiply, uint32_t>(),
         InVectors<Multiply, uint64_t>()},
        {InVectors<Maximum, float>(), InVectors<Maximum, double>(), InVectors<Maximum, int32_t>(), Loops{}},
        {InVectors<Minimum, float>(), InVectors<Minimum, double>(), InVectors<Minimum, int32_t>(), Loops{}},
        {Chained<LogAddExp, float>(), Chained<LogAddExp, double>(), Loops{}, Loops{}},
    }};
}

}  // namespace hlo_dispatch::cumulative
