#include "common/peak.h"
#include "common/vectors.h"

namespace hlo_dispatch {
namespace {

float RunRounds(int64_t rounds) {
  // More chains than two units have steps in flight.
  constexpr int kChains = 12;
  const Vector factor = Repeated(0.999f), summand = Repeated(1e-3f);
  Vector chains[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) chains[i] = Repeated(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      chains[i] = chains[i] * factor + summand;
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
const PeakArithmetic kPeak = RunRounds;
}

}  // namespace hlo_dispatch
