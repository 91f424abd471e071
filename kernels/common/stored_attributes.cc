#include "common/stored_attributes.h"

#include "common/failure.h"

namespace hlo_dispatch {

template <typename T>
const T& StoredAttributes::Get(const std::string& name, const char* expected) const {
  const auto found = values_.find(name);
  if (found == values_.end()) Invalid("attribute '" + name + "' is missing (expected " + expected + ")");
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) Invalid("attribute '" + name + "' is not " + expected);
  return *value;
}

int64_t StoredAttributes::Integer(const std::string& name) const { return Get<int64_t>(name, "an integer"); }

float StoredAttributes::Real(const std::string& name) const {
  const auto found = values_.find(name);
  const bool whole = found != values_.end() && std::holds_alternative<int64_t>(found->second);
  return static_cast<float>(whole ? static_cast<double>(Integer(name)) : Get<double>(name, "a number"));
}

std::string StoredAttributes::Text(const std::string& name) const { return Get<std::string>(name, "a string"); }

std::vector<int64_t> StoredAttributes::Integers(const std::string& name) const {
  return Get<std::vector<int64_t>>(name, "a list of integers");
}

std::unique_ptr<Attributes> StoredAttributes::Nested(const std::string& name) const {
  return std::make_unique<StoredAttributes>(*Get<std::shared_ptr<const StoredAttributes>>(name, "a dict"));
}

}  // namespace hlo_dispatch
