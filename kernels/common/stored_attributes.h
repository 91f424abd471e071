// Attributes stored as values, for support queries: they outlive the Python dict they were copied from, and are
// thread-safe to read.
#ifndef HLO_DISPATCH_COMMON_STORED_ATTRIBUTES_H_
#define HLO_DISPATCH_COMMON_STORED_ATTRIBUTES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/attributes.h"

namespace hlo_dispatch {

class StoredAttributes final : public Attributes {
 public:
  // An entry of another type than Attributes knows (std::monostate) is not missing, but is nothing that was expected.
  using Value = std::variant<std::monostate, int64_t, double, std::string, std::vector<int64_t>,
                             std::shared_ptr<const StoredAttributes>>;

  void Set(std::string name, Value value) { values_[std::move(name)] = std::move(value); }

  bool Has(const std::string& name) const override { return values_.count(name) != 0; }
  int64_t Integer(const std::string& name) const override;
  float Real(const std::string& name) const override;
  std::string Text(const std::string& name) const override;
  std::vector<int64_t> Integers(const std::string& name) const override;
  std::unique_ptr<Attributes> Nested(const std::string& name) const override;

 private:
  template <typename T>
  const T& Get(const std::string& name, const char* expected) const;

  std::map<std::string, Value> values_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_STORED_ATTRIBUTES_H_
