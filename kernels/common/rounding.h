// Division of sizes into pieces.
#ifndef HLO_DISPATCH_COMMON_ROUNDING_H_
#define HLO_DISPATCH_COMMON_ROUNDING_H_

#include <cstdint>

namespace hlo_dispatch {

constexpr int64_t CeilOfRatio(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }
constexpr int64_t RoundUpTo(int64_t value, int64_t multiple) { return CeilOfRatio(value, multiple) * multiple; }

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_ROUNDING_H_
