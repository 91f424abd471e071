// Attributes read from a custom-call's typed dictionary.
#ifndef HLO_DISPATCH_COMMON_FFI_ATTRIBUTES_H_
#define HLO_DISPATCH_COMMON_FFI_ATTRIBUTES_H_

#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/ffi.h"

namespace hlo_dispatch {

class FfiAttributes final : public Attributes {
 public:
  explicit FfiAttributes(xla::ffi::Dictionary dictionary) : dictionary_(dictionary) {}

  bool Has(const std::string& name) const override;
  int64_t Integer(const std::string& name) const override;
  float Real(const std::string& name) const override;
  std::string Text(const std::string& name) const override;
  std::vector<int64_t> Integers(const std::string& name) const override;
  std::unique_ptr<Attributes> Nested(const std::string& name) const override;

 private:
  template <typename T>
  T Get(const std::string& name, const char* expected) const;

  xla::ffi::Dictionary dictionary_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_FFI_ATTRIBUTES_H_
