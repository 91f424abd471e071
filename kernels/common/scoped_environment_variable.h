// A variable of the environment that is there for a library only, while that one starts.
#ifndef HLO_DISPATCH_COMMON_SCOPED_ENVIRONMENT_VARIABLE_H_
#define HLO_DISPATCH_COMMON_SCOPED_ENVIRONMENT_VARIABLE_H_

#include <string>

namespace hlo_dispatch {

// Sets the variable unless it has a value, and takes it away again when it goes: what stays in the environment is
// inherited by every child. Not from two threads at once.
class LentVariable {
 public:
  LentVariable(const std::string& name, const std::string& value);
  ~LentVariable();
  LentVariable(const LentVariable&) = delete;
  LentVariable& operator=(const LentVariable&) = delete;

 private:
  std::string name_, value_;
  bool lent_ = false;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SCOPED_ENVIRONMENT_VARIABLE_H_
