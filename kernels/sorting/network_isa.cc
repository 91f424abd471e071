// Merge exchange (Batcher's odd-even mergesort, for any number of elements) of unsigned numbers in lanes.
#include "sorting/network.h"

#include <cstdint>

#include "common/vectors.h"

namespace hlo_dispatch::sorting {
namespace {

template <typename T>
void Sort(T* elements, int64_t count) {
  constexpr int kCount = kVectorBytes / sizeof(T);
  typedef T Value __attribute__((vector_size(kVectorBytes)));
  typedef T Places __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  const auto at = [&](int64_t i) -> Places* { return reinterpret_cast<Places*>(elements + i * kCount); };
  for (int64_t p = 1; p < count; p *= 2) {
    for (int64_t k = p; k >= 1; k /= 2) {
      for (int64_t j = k % p; j + k < count; j += 2 * k) {
        const int64_t compared = k < count - j - k ? k : count - j - k;
        for (int64_t i = 0; i < compared; ++i) {
          if (((i + j) ^ (i + j + k)) >= 2 * p) continue;
          const Value first = *at(i + j), second = *at(i + j + k);
          *at(i + j) = first < second ? first : second;
          *at(i + j + k) = first < second ? second : first;
        }
      }
    }
  }
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const Network kNetwork = {HLO_DISPATCH_ISA_NAME, kVectorBytes / 4, kVectorBytes / 8, Sort<uint32_t>, Sort<uint64_t>};
}

}  // namespace hlo_dispatch::sorting
