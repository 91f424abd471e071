// Scoped environment variable: set while a library starts, removed afterwards.
#ifndef HLO_DISPATCH_COMMON_SCOPED_ENVIRONMENT_VARIABLE_H_
#define HLO_DISPATCH_COMMON_SCOPED_ENVIRONMENT_VARIABLE_H_

#include <string>

namespace hlo_dispatch {

// Sets the variable unless it has a value; the destructor removes it, since every child process inherits the
// environment. Not thread-safe.
class ScopedEnvironmentVariable {
 public:
  ScopedEnvironmentVariable(const std::string& name, const std::string& value);
  ~ScopedEnvironmentVariable();
  ScopedEnvironmentVariable(const ScopedEnvironmentVariable&) = delete;
  ScopedEnvironmentVariable& operator=(const ScopedEnvironmentVariable&) = delete;

 private:
  std::string name_, value_;
  bool is_set_ = false;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SCOPED_ENVIRONMENT_VARIABLE_H_
