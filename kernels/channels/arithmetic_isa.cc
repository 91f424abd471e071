// Rows of channels scaled and summed up.
#include <cstdint>

#include "channels/arithmetic.h"
#include "common/vectors.h"

namespace hlo_dispatch::channels {
namespace {

struct Single {
  using Element = AnyFloat;
  static HLO_DISPATCH_INLINE Vector Read(const Element* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static HLO_DISPATCH_INLINE void Write(Element* to, Vector value) { *reinterpret_cast<Unaligned*>(to) = value; }
  static HLO_DISPATCH_INLINE float ReadOne(const Element* from) { return *from; }
  static HLO_DISPATCH_INLINE void WriteOne(Element* to, float value) { *to = value; }
};

struct Half {
  using Element = AnyHalf;
  static HLO_DISPATCH_INLINE Vector Read(const Element* from) { return LoadBf16(reinterpret_cast<const char*>(from)); }
  static HLO_DISPATCH_INLINE void Write(Element* to, Vector value) { StoreBf16(to, value); }
  static HLO_DISPATCH_INLINE float ReadOne(const Element* from) { return FromBf16(*from); }
  static HLO_DISPATCH_INLINE void WriteOne(Element* to, float value) { *to = ToBf16(value); }
};

template <typename Type, bool kShifted>
void ScaleRows(const typename Type::Element* from, const float* factors, const float* shifts, int64_t rows,
               int64_t channels, typename Type::Element* to) {
  const auto scaled = [&](int64_t i) {
    const Vector product = Type::Read(from + i) * Load(factors + i);
    return kShifted ? product + Load(shifts + i) : product;
  };
  for (int64_t row = 0; row < rows; ++row, from += channels, to += channels) {
    if (channels < kLanes) {
      for (int64_t i = 0; i < channels; ++i) {
        const float product = Type::ReadOne(from + i) * factors[i];
        Type::WriteOne(to + i, kShifted ? product + shifts[i] : product);
      }
      continue;
    }
    // The last vector overlaps the one before it, which may be written where this one is read.
    const int64_t last = channels - kLanes;
    const Vector end = scaled(last);
    for (int64_t i = 0; i < last; i += kLanes) Type::Write(to + i, scaled(i));
    Type::Write(to + last, end);
  }
}

template <typename Type>
void Scale(const void* source, const float* factors, const float* shifts, int64_t rows, int64_t channels,
           void* destination) {
  const auto* from = static_cast<const typename Type::Element*>(source);
  auto* to = static_cast<typename Type::Element*>(destination);
  if (shifts == nullptr) {
    ScaleRows<Type, false>(from, factors, shifts, rows, channels, to);
  } else {
    ScaleRows<Type, true>(from, factors, shifts, rows, channels, to);
  }
}

// The sums of some vectors of channels, in twice as many registers: an addition takes as long as several reads.
template <typename Type, int kVectors>
HLO_DISPATCH_INLINE void Sum(const typename Type::Element* from, int64_t rows, int64_t channels,
                             Vector (&sums)[kVectors]) {
  Vector odd[kVectors];
  for (int i = 0; i < kVectors; ++i) sums[i] = odd[i] = Vector{};
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2, from += 2 * channels) {
    for (int i = 0; i < kVectors; ++i) sums[i] += Type::Read(from + i * kLanes);
    for (int i = 0; i < kVectors; ++i) odd[i] += Type::Read(from + channels + i * kLanes);
  }
  if (row < rows) {
    for (int i = 0; i < kVectors; ++i) sums[i] += Type::Read(from + i * kLanes);
  }
  for (int i = 0; i < kVectors; ++i) sums[i] += odd[i];
}

template <typename Type, int kVectors>
HLO_DISPATCH_INLINE int64_t AddVectors(const typename Type::Element* from, int64_t begin, int64_t rows,
                                       int64_t channels, float* sums) {
  for (; begin + kVectors * kLanes <= channels; begin += kVectors * kLanes) {
    Vector found[kVectors];
    Sum<Type, kVectors>(from + begin, rows, channels, found);
    for (int i = 0; i < kVectors; ++i) {
      float* to = sums + begin + i * kLanes;
      Store(to, Load(to) + found[i]);
    }
  }
  return begin;
}

template <typename Type>
void Add(const void* source, int64_t rows, int64_t channels, float* sums) {
  const auto* from = static_cast<const typename Type::Element*>(source);
  const int64_t done =
      AddVectors<Type, 1>(from, AddVectors<Type, 4>(from, 0, rows, channels, sums), rows, channels, sums);
  if (done == channels) return;
  if (channels < kLanes) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < channels; ++i) sums[i] += Type::ReadOne(from + row * channels + i);
    }
    return;
  }
  // Of the last vector only what no other one had.
  const int64_t last = channels - kLanes;
  Vector found[1];
  Sum<Type, 1>(from + last, rows, channels, found);
  for (int64_t i = done; i < channels; ++i) sums[i] += found[0][i - last];
}

// --- normalization --------------------------------------------------------------------------------------------

typedef double Doubles __attribute__((vector_size(kVectorBytes)));
constexpr int64_t kDoubles = kVectorBytes / 8;

HLO_DISPATCH_INLINE Doubles LoadDoubles(const double* from) {
  typedef double Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  return *reinterpret_cast<const Anywhere*>(from);
}
HLO_DISPATCH_INLINE void AddTo(double* to, Doubles value) {
  typedef double Anywhere __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  *reinterpret_cast<Anywhere*>(to) = LoadDoubles(to) + value;
}
HLO_DISPATCH_INLINE Doubles Widened(const AnyFloat* from) {
  typedef float Narrow __attribute__((vector_size(kVectorBytes / 2), aligned(1), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Narrow*>(from), Doubles);
}
HLO_DISPATCH_INLINE Doubles Widened(const AnyHalf* from) {
  typedef uint16_t Short __attribute__((vector_size(kVectorBytes / 4), aligned(1), may_alias));
  typedef uint32_t Wide __attribute__((vector_size(kVectorBytes / 2)));
  typedef float Narrow __attribute__((vector_size(kVectorBytes / 2)));
  const Wide bits = __builtin_convertvector(*reinterpret_cast<const Short*>(from), Wide) << 16;
  return __builtin_convertvector(reinterpret_cast<Narrow>(bits), Doubles);
}

// Some vectors of channels, whose sums stay in registers over all rows.
template <typename Type, int kVectors>
int64_t AddSquaresOfVectors(const typename Type::Element* source, int64_t begin, int64_t rows, int64_t channels,
                            double* sums, double* squares) {
  for (; begin + kVectors * kDoubles <= channels; begin += kVectors * kDoubles) {
    Doubles total[kVectors], square[kVectors];
    for (int i = 0; i < kVectors; ++i) total[i] = square[i] = Doubles{};
    const typename Type::Element* from = source + begin;
    for (int64_t row = 0; row < rows; ++row, from += channels) {
      for (int i = 0; i < kVectors; ++i) {
        const Doubles value = Widened(from + i * kDoubles);
        total[i] += value;
        square[i] += value * value;
      }
    }
    for (int i = 0; i < kVectors; ++i) {
      AddTo(sums + begin + i * kDoubles, total[i]);
      AddTo(squares + begin + i * kDoubles, square[i]);
    }
  }
  return begin;
}

template <typename Type>
void AddSquares(const void* source, int64_t rows, int64_t channels, double* sums, double* squares) {
  const auto* from = static_cast<const typename Type::Element*>(source);
  int64_t done = AddSquaresOfVectors<Type, 4>(from, 0, rows, channels, sums, squares);
  done = AddSquaresOfVectors<Type, 1>(from, done, rows, channels, sums, squares);
  for (int64_t row = 0; row < rows && done < channels; ++row) {
    for (int64_t i = done; i < channels; ++i) {
      const double value = Type::ReadOne(from + row * channels + i);
      sums[i] += value;
      squares[i] += value * value;
    }
  }
}

template <typename Type, bool kSwish>
void NormalizeRows(const typename Type::Element* from, const float* means, const float* factors, const float* shifts,
                   int64_t rows, int64_t channels, typename Type::Element* to) {
  const auto normal = [&](Vector value, Vector mean, Vector factor, Vector shift) __attribute__((always_inline)) {
    const Vector found = (value - mean) * factor + shift;
    return kSwish ? found * Sigmoid(found) : found;
  };
  const auto vector = [&](int64_t i) __attribute__((always_inline)) {
    return normal(Type::Read(from + i), Load(means + i), Load(factors + i), Load(shifts + i));
  };
  for (int64_t row = 0; row < rows; ++row, from += channels, to += channels) {
    if (channels < kLanes) {
      for (int64_t i = 0; i < channels; ++i) {
        const Vector found =
            normal(Repeated(Type::ReadOne(from + i)), Repeated(means[i]), Repeated(factors[i]), Repeated(shifts[i]));
        Type::WriteOne(to + i, found[0]);
      }
      continue;
    }
    // The last vector overlaps the one before it, which may be written where this one is read.
    const int64_t last = channels - kLanes;
    const Vector end = vector(last);
    for (int64_t i = 0; i < last; i += kLanes) Type::Write(to + i, vector(i));
    Type::Write(to + last, end);
  }
}

template <typename Type>
void Normalize(const void* source, const float* means, const float* factors, const float* shifts, bool swish,
               int64_t rows, int64_t channels, void* destination) {
  const auto* from = static_cast<const typename Type::Element*>(source);
  auto* to = static_cast<typename Type::Element*>(destination);
  (swish ? NormalizeRows<Type, true> : NormalizeRows<Type, false>)(from, means, factors, shifts, rows, channels, to);
}

template <typename Type>
constexpr Loops LoopsOf() {
  return {Scale<Type>, Add<Type>, AddSquares<Type>, Normalize<Type>};
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, LoopsOf<Single>(), LoopsOf<Half>()};
}

}  // namespace hlo_dispatch::channels
