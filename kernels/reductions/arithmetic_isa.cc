// Places of maxima.
#include <cstdint>

#include "common/vectors.h"
#include "reductions/arithmetic.h"

namespace hlo_dispatch::reductions {
namespace {

struct Single {
  using Element = AnyFloat;
  static HLO_DISPATCH_INLINE Vector Read(const Element* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static HLO_DISPATCH_INLINE float ReadOne(const Element* from) { return *from; }
};

struct Half {
  using Element = AnyHalf;
  static HLO_DISPATCH_INLINE Vector Read(const Element* from) { return LoadBf16(reinterpret_cast<const char*>(from)); }
  static HLO_DISPATCH_INLINE float ReadOne(const Element* from) { return FromBf16(*from); }
};

constexpr float kLowest = -__builtin_inff();
// Vectors at once: a maximum takes as long as several reads.
constexpr int kVectors = 4;
// Numbers among which the largest is searched once more, element by element.
constexpr int64_t kBlock = 16 * kVectors * kLanes;

// The maximum of a block, where none of its numbers is NaN; else NaN.
template <typename Type>
HLO_DISPATCH_INLINE float Maximum(const typename Type::Element* from, int64_t count) {
  Vector peaks[kVectors];
  Bits unordered[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    peaks[i] = Repeated(kLowest);
    unordered[i] = Bits{};
  }
  const auto add = [&](int i, Vector value) __attribute__((always_inline)) {
    peaks[i] = Larger(value, peaks[i]);
    unordered[i] |= value != value;
  };
  int64_t begin = 0;
  for (; begin + kVectors * kLanes <= count; begin += kVectors * kLanes) {
    for (int i = 0; i < kVectors; ++i) add(i, Type::Read(from + begin + i * kLanes));
  }
  for (; begin + kLanes <= count; begin += kLanes) add(0, Type::Read(from + begin));
  for (int i = 1; i < kVectors; ++i) {
    peaks[0] = Larger(peaks[0], peaks[i]);
    unordered[0] |= unordered[i];
  }
  float peak = Largest(peaks[0]);
  bool is_unordered = HasAny(unordered[0]);
  for (; begin < count; ++begin) {
    const float value = Type::ReadOne(from + begin);
    is_unordered |= value != value;
    peak = value > peak ? value : peak;
  }
  return is_unordered ? __builtin_nanf("") : peak;
}

template <typename Type>
Peak FirstMaximum(const void* source, int64_t count) {
  const auto* from = static_cast<const typename Type::Element*>(source);
  Peak best{kLowest, 0};
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const float peak = Maximum<Type>(from + begin, count - begin < kBlock ? count - begin : kBlock);
    const bool is_unordered = peak != peak;
    if (is_unordered || peak > best.value) best = {peak, begin};
    if (is_unordered) break;
  }
  // The block is known, the place in it not yet.
  for (;; ++best.place) {
    const float value = Type::ReadOne(from + best.place);
    if (best.value != best.value ? value != value : value == best.value) return best;
  }
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME, FirstMaximum<Single>, FirstMaximum<Half>};
}

}  // namespace hlo_dispatch::reductions
