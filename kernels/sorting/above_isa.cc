// Numbers above a bound, in the order of their bits: -NaN, -inf, ..., -0, 0, ..., inf, NaN.
#include <cstdint>

#include "common/vectors.h"
#include "sorting/above.h"

namespace hlo_dispatch::sorting {
namespace {

typedef int32_t AnySigned __attribute__((may_alias, aligned(1)));
typedef int32_t UnalignedBits __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));

// Vectors that are looked at together: few of them have a number above the bound.
constexpr int kVectors = 8;

template <typename Signed>
HLO_DISPATCH_INLINE Signed Ordered(Signed bits) {
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

HLO_DISPATCH_INLINE Bits Above(const AnySigned* bits, int32_t bound) {
  return Ordered<Bits>(*reinterpret_cast<const UnalignedBits*>(bits)) > bound;
}

int64_t FirstAbove(const float* numbers, int64_t begin, int64_t count, int32_t bound) {
  const auto* bits = reinterpret_cast<const AnySigned*>(numbers);
  for (; begin + kVectors * kLanes <= count; begin += kVectors * kLanes) {
    Bits above{};
    for (int i = 0; i < kVectors; ++i) above |= Above(bits + begin + i * kLanes, bound);
    if (HasAny(above)) break;
  }
  while (begin + kLanes <= count && !HasAny(Above(bits + begin, bound))) begin += kLanes;
  while (begin < count && Ordered<int32_t>(bits[begin]) <= bound) ++begin;
  return begin;
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Search kSearch = {HLO_DISPATCH_ISA_NAME, FirstAbove};
}

}  // namespace hlo_dispatch::sorting
