// Failure: the exception of this library. Never leaves it: the XLA FFI handlers (common/ffi_handler.h) and the C API
// (c_api/error.h) convert it to their errors.
#ifndef HLO_DISPATCH_COMMON_FAILURE_H_
#define HLO_DISPATCH_COMMON_FAILURE_H_

#include <map>
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

// The entry that an attribute names. Throws Failure(kInvalid), which lists what there is, where there is none.
template <typename Value>
const Value& Named(const std::map<std::string, Value>& known, const std::string& name, const std::string& attribute) {
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  std::string valid;
  for (const auto& [other, value] : known) valid += (valid.empty() ? "" : ", ") + other;
  Invalid(attribute + ": expected one of " + valid + ", got '" + name + "'");
}

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_FAILURE_H_
