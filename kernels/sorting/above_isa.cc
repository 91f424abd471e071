// Numbers above a bound, in the order of their bits: -NaN, -inf, ..., -0, 0, ..., inf, NaN.
#include <cstdint>
#include <limits>

#include "common/vectors.h"
#include "sorting/above.h"

namespace hlo_dispatch::sorting {
namespace {

// Vectors that are looked at together: few of them have a number above the bound.
constexpr int kVectors = 8;

template <typename Value, typename Signed>
HLO_DISPATCH_INLINE Value Ordered(Value bits) {
  return bits ^ ((bits >> (8 * sizeof(Signed) - 1)) & std::numeric_limits<Signed>::max());
}

template <typename Unsigned, typename Signed>
int64_t FirstAbove(const Unsigned* numbers, int64_t begin, int64_t count, Signed bound) {
  typedef Signed InMemory __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  typedef Signed Value __attribute__((vector_size(kVectorBytes)));
  constexpr int lanes = kVectorBytes / sizeof(Signed);
  const auto above = [&](int64_t i) __attribute__((always_inline)) {
    const Value bits = *reinterpret_cast<const InMemory*>(numbers + i);
    return Ordered<Value, Signed>(bits) > bound;
  };
  for (; begin + kVectors * lanes <= count; begin += kVectors * lanes) {
    auto any = above(begin);
    for (int i = 1; i < kVectors; ++i) any |= above(begin + i * lanes);
    if (HasAny(reinterpret_cast<Bits>(any))) break;
  }
  for (; begin + lanes <= count; begin += lanes) {
    if (const uint32_t found = LanesOf<sizeof(Signed)>(above(begin))) return begin + __builtin_ctz(found);
  }
  while (begin < count && Ordered<Signed, Signed>(static_cast<Signed>(numbers[begin])) <= bound) ++begin;
  return begin;
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Search kSearch = {HLO_DISPATCH_ISA_NAME, FirstAbove<uint32_t, int32_t>, FirstAbove<uint64_t, int64_t>};
}

}  // namespace hlo_dispatch::sorting
