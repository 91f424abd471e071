// Peak-arithmetic probe: time of all threads at the peak of the vector units; hyper-threads of one core share those,
// which virtual machines do not report.
#ifndef HLO_DISPATCH_COMMON_PEAK_H_
#define HLO_DISPATCH_COMMON_PEAK_H_

#include <cstdint>

namespace hlo_dispatch {

// Rounds of independent multiply-adds in registers; returns a value so that the compiler does not remove them.
using PeakArithmetic = float (*)(int64_t rounds);
namespace plain {
extern const PeakArithmetic kPeak;
}
namespace avx2 {
extern const PeakArithmetic kPeak;
}
namespace avx512 {
extern const PeakArithmetic kPeak;
}

// Processor time of the slowest of so many threads, each with so many rounds, in nanoseconds; 0 where they could not be
// had to run at the same time, because other work was on the processors.
int64_t NanosecondsAtPeak(int threads, int64_t rounds);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_PEAK_H_
