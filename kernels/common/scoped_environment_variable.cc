#include "common/scoped_environment_variable.h"

#include <cstdlib>

namespace hlo_dispatch {

LentVariable::LentVariable(const std::string& name, const std::string& value) : name_(name), value_(value) {
  lent_ = std::getenv(name_.c_str()) == nullptr && setenv(name_.c_str(), value_.c_str(), /*overwrite=*/0) == 0;
}

LentVariable::~LentVariable() {
  // Somebody may have given it another value meanwhile.
  const char* now = lent_ ? std::getenv(name_.c_str()) : nullptr;
  if (now != nullptr && value_ == now) unsetenv(name_.c_str());
}

}  // namespace hlo_dispatch
