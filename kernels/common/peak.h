// How long the processors take for arithmetic at the peak of their vector units, all threads at once: two threads of
// one core share those units, which no count of the system's shows.
#ifndef HLO_DISPATCH_COMMON_PEAK_H_
#define HLO_DISPATCH_COMMON_PEAK_H_

#include <cstdint>

namespace hlo_dispatch {

// Rounds of independent multiply-adds in registers; returns what keeps the compiler from leaving them out.
using PeakArithmetic = float (*)(int64_t rounds);
extern const PeakArithmetic kPlainPeak, kAvx2Peak, kAvx512Peak;

// Processor time of the slowest of so many threads, each with so many rounds, in nanoseconds; 0 where they could not be
// had to run at the same time, because other work was on the processors.
int64_t NanosecondsAtPeak(int threads, int64_t rounds);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_PEAK_H_
