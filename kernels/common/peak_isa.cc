#include "common/peak.h"
#include "common/vectors.h"

namespace hlo_dispatch {
namespace {

// More chains than two units have steps in flight.
constexpr int kChains = 12;

#if defined(__AVX512BF16__)
constexpr int kPerLane = 2;
HLO_DISPATCH_INLINE Vector Step(Vector sum, Vector factor, Vector other) {
  return reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(factor),
                                                   reinterpret_cast<__m512bh>(other)));
}
#else
constexpr int kPerLane = 1;
HLO_DISPATCH_INLINE Vector Step(Vector sum, Vector factor, Vector other) { return sum * factor + other; }
#endif

float RunRounds(int64_t rounds) {
  const Vector factor = Repeated(0.999f), summand = Repeated(1e-3f);
  Vector chains[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) chains[i] = Repeated(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      chains[i] = Step(chains[i], factor, summand);
      asm volatile("" : "+v"(chains[i]));  // each step is computed, as it is written
    }
  }
  Vector sum = chains[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum += chains[i];
  return sum[0];
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const PeakArithmetic kPeak = {RunRounds, kChains * kLanes * kPerLane};
}

}  // namespace hlo_dispatch
