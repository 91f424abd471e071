// Peak-arithmetic probe: time of all threads at the peak of the vector units; hyper-threads of one core share those,
// which virtual machines do not report.
#ifndef HLO_DISPATCH_COMMON_PEAK_H_
#define HLO_DISPATCH_COMMON_PEAK_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch {

// Independent multiply-adds in registers; of bf16 with sums in f32 for avx512_bf16.
struct PeakArithmetic {
  // Returns a value so that the compiler does not remove them.
  float (*run)(int64_t rounds);
  // Of each round.
  int multiply_adds;
};
HLO_DISPATCH_FOR_EACH_ISA(extern const PeakArithmetic kPeak;)

// The best of this processor for f32.
const PeakArithmetic& Peak();

// Processor time of the slowest of so many threads, each with so many rounds, in nanoseconds; 0 where they could not be
// had to run at the same time, because other work was on the processors.
int64_t NanosecondsAtPeak(int threads, int64_t rounds);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_PEAK_H_
