#include "common/scoped_environment_variable.h"

#include <cstdlib>

namespace hlo_dispatch {

ScopedEnvironmentVariable::ScopedEnvironmentVariable(const std::string& name, const std::string& value)
    : name_(name), value_(value) {
  is_set_ = std::getenv(name_.c_str()) == nullptr && setenv(name_.c_str(), value_.c_str(), /*overwrite=*/0) == 0;
}

ScopedEnvironmentVariable::~ScopedEnvironmentVariable() {
  // Another thread may have set another value meanwhile.
  const char* now = is_set_ ? std::getenv(name_.c_str()) : nullptr;
  if (now != nullptr && value_ == now) unsetenv(name_.c_str());
}

}  // namespace hlo_dispatch
