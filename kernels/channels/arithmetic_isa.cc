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

template <typename Type>
constexpr Loops LoopsOf() {
  return {Scale<Type>, Add<Type>};
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, LoopsOf<Single>(), LoopsOf<Half>()};
}

}  // namespace hlo_dispatch::channels
