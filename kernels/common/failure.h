// Failure: the exception of this library. Never leaves it: the XLA FFI handlers (common/ffi_failure.h) and the C API
// (c_api/error.h) convert it to their errors.
#ifndef HLO_DISPATCH_COMMON_FAILURE_H_
#define HLO_DISPATCH_COMMON_FAILURE_H_

#include <stdexcept>
#include <string>

namespace hlo_dispatch {

enum class FailureKind {
  kInvalid,      // the call is malformed: a missing attribute, a wrong operand
  kUnsupported,  // well-formed, but the vendor library has no kernel for it
  kUnavailable,  // the vendor library is not loaded, or not the one planned for
  kInternal,     // the vendor library failed
};

class Failure : public std::runtime_error {
 public:
  Failure(FailureKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  FailureKind kind() const { return kind_; }

 private:
  FailureKind kind_;
};

[[noreturn]] inline void Invalid(const std::string& message) { throw Failure(FailureKind::kInvalid, message); }
[[noreturn]] inline void Unsupported(const std::string& message) { throw Failure(FailureKind::kUnsupported, message); }
[[noreturn]] inline void Unavailable(const std::string& message) { throw Failure(FailureKind::kUnavailable, message); }

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_FAILURE_H_
