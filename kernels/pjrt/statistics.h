// Counts of what became of the host's programs.
#ifndef HLO_DISPATCH_PJRT_STATISTICS_H_
#define HLO_DISPATCH_PJRT_STATISTICS_H_

#include <string>

namespace hlo_dispatch::pjrt {

enum class Outcome { kDispatched, kUnchanged, kFailed };

void Count(Outcome outcome);
// Also says so on standard error, the first time.
void CountFailure(const std::string& sentence);

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_STATISTICS_H_
