// The XLA FFI headers, with the version our handlers claim to need.
//
// A handler compiled against a newer jaxlib would claim that jaxlib's API version, and an older jaxlib at run
// time would refuse it, although nothing newer is used. So we claim the oldest version we support: 0.3, that of
// jaxlib 0.10.2. XLA promises to accept older versions for at least a year.
#ifndef HLO_DISPATCH_COMMON_FFI_H_
#define HLO_DISPATCH_COMMON_FFI_H_

#include "xla/ffi/api/c_api.h"

static_assert(XLA_FFI_API_MAJOR == 0 && XLA_FFI_API_MINOR >= 3, "jaxlib >= 0.10.2 is needed to build");
#undef XLA_FFI_API_MINOR
#define XLA_FFI_API_MINOR 3

#include "xla/ffi/api/ffi.h"

#endif  // HLO_DISPATCH_COMMON_FFI_H_
