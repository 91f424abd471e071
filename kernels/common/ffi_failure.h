// Conversion of exceptions in FFI handlers to XLA errors.
#ifndef HLO_DISPATCH_COMMON_FFI_FAILURE_H_
#define HLO_DISPATCH_COMMON_FFI_FAILURE_H_

#include <exception>
#include <string>

#include "common/failure.h"
#include "common/ffi.h"

namespace hlo_dispatch {

inline xla::ffi::ErrorCode ErrorCodeOf(FailureKind kind) {
  switch (kind) {
    case FailureKind::kInvalid:
      return xla::ffi::ErrorCode::kInvalidArgument;
    case FailureKind::kUnsupported:
      return xla::ffi::ErrorCode::kUnimplemented;
    case FailureKind::kUnavailable:
      return xla::ffi::ErrorCode::kFailedPrecondition;
    case FailureKind::kInternal:
      return xla::ffi::ErrorCode::kInternal;
  }
  return xla::ffi::ErrorCode::kUnknown;
}

// Runs `body`; whatever it throws becomes an error that starts with the target's name.
template <typename Body>
xla::ffi::Error Guarded(const char* target, const Body& body) {
  try {
    body();
    return xla::ffi::Error::Success();
  } catch (const Failure& failure) {
    return xla::ffi::Error(ErrorCodeOf(failure.kind()), std::string(target) + ": " + failure.what());
  } catch (const std::exception& error) {
    return xla::ffi::Error::Internal(std::string(target) + ": " + error.what());
  }
}

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_FFI_FAILURE_H_
