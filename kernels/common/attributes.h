// A kernel call's attributes ("spec"), as the kernels read them. The same code reads the custom-call's
// dictionary at instantiation and a Python dict when a call is planned, so a plan cannot mean something else
// than the call. Every reader throws Failure(kInvalid) naming the attribute, what was expected and what came.
#ifndef HLO_DISPATCH_COMMON_ATTRIBUTES_H_
#define HLO_DISPATCH_COMMON_ATTRIBUTES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hlo_dispatch {

class Attributes {
 public:
  virtual ~Attributes() = default;

  virtual bool Has(const std::string& name) const = 0;
  virtual int64_t Integer(const std::string& name) const = 0;
  virtual float Real(const std::string& name) const = 0;
  virtual std::string Text(const std::string& name) const = 0;
  virtual std::vector<int64_t> Integers(const std::string& name) const = 0;
  virtual std::unique_ptr<Attributes> Nested(const std::string& name) const = 0;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_ATTRIBUTES_H_
