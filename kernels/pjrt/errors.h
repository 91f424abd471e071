// Errors of the plugin's own, beside those of the runtime, which are of another make.
#ifndef HLO_DISPATCH_PJRT_ERRORS_H_
#define HLO_DISPATCH_PJRT_ERRORS_H_

#include <string>

#include "pjrt/c_interface.h"

namespace hlo_dispatch::pjrt {

// absl's codes.
inline constexpr int kResourceExhausted = 8, kFailedPrecondition = 9;

Error* NewError(int code, std::string message);
bool IsOurs(const Error* error);

// PJRT's functions about errors, of ours.
void DestroyOurs(ErrorDestroy* arguments);
void MessageOfOurs(ErrorMessage* arguments);
void CodeOfOurs(ErrorCode* arguments);

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_ERRORS_H_
