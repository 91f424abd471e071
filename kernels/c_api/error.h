// C API errors: exceptions become error objects that the caller frees.
#ifndef HLO_DISPATCH_C_API_ERROR_H_
#define HLO_DISPATCH_C_API_ERROR_H_

#include <exception>
#include <string>

#include "common/failure.h"
#include "hlo_dispatch/kernels.h"

struct hlo_dispatch_error {
  hlo_dispatch_error_kind kind;
  std::string message;
};

namespace hlo_dispatch::host {

inline hlo_dispatch_error_kind KindOf(FailureKind kind) {
  switch (kind) {
    case FailureKind::kInvalid:
      return HLO_DISPATCH_INVALID;
    case FailureKind::kUnsupported:
      return HLO_DISPATCH_UNSUPPORTED;
    case FailureKind::kUnavailable:
      return HLO_DISPATCH_UNAVAILABLE;
    case FailureKind::kInternal:
      return HLO_DISPATCH_INTERNAL;
  }
  return HLO_DISPATCH_INTERNAL;
}

// Runs `body`; null where it throws nothing.
template <typename Body>
hlo_dispatch_error* Guarded(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (const Failure& failure) {
    return new hlo_dispatch_error{KindOf(failure.kind()), failure.what()};
  } catch (const std::exception& error) {
    return new hlo_dispatch_error{HLO_DISPATCH_INTERNAL, error.what()};
  } catch (...) {
    return new hlo_dispatch_error{HLO_DISPATCH_INTERNAL, "it threw something that is no exception"};
  }
}

}  // namespace hlo_dispatch::host

#endif  // HLO_DISPATCH_C_API_ERROR_H_
