// What XLA's FFI handlers share: exceptions become errors of XLA's; the state of a call, which instantiation makes and
// execution is given.
#ifndef HLO_DISPATCH_COMMON_FFI_HANDLER_H_
#define HLO_DISPATCH_COMMON_FFI_HANDLER_H_

#include <exception>
#include <string>
#include <utility>

#include "common/failure.h"
#include "common/ffi.h"
#include "common/registry.h"

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

// `State` has a static member `id`.
template <typename State>
const StateType& RegisterState(const char* name) {
  static const XLA_FFI_TypeInfo info = xla::ffi::MakeTypeInfo<State>();
  return Register(StateType{name, &State::id, &info});
}

// What make() makes, or the error that it throws.
template <typename Make>
auto Instantiated(const std::string& target, const Make& make) -> xla::ffi::ErrorOr<decltype(make())> {
  decltype(make()) state;
  xla::ffi::Error error = Guarded(target.c_str(), [&] { state = make(); });
  if (error.failure()) return xla::ffi::Unexpected(std::move(error));
  return state;
}

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_FFI_HANDLER_H_
