#include "common/ffi_attributes.h"

#include <string_view>

#include "common/failure.h"

namespace hlo_dispatch {

namespace ffi = xla::ffi;

template <typename T>
T FfiAttributes::Get(const std::string& name, const char* expected) const {
  if (!dictionary_.contains(name)) Invalid("attribute '" + name + "' is missing (expected " + expected + ")");
  ffi::ErrorOr<T> value = dictionary_.get<T>(name);
  if (!value.has_value()) Invalid("attribute '" + name + "' is not " + expected);
  return *value;
}

bool FfiAttributes::Has(const std::string& name) const { return dictionary_.contains(name); }

int64_t FfiAttributes::Integer(const std::string& name) const { return Get<int64_t>(name, "an i64"); }

float FfiAttributes::Real(const std::string& name) const { return Get<float>(name, "an f32"); }

std::string FfiAttributes::Text(const std::string& name) const {
  return std::string(Get<std::string_view>(name, "a string"));
}

std::vector<int64_t> FfiAttributes::Integers(const std::string& name) const {
  auto values = Get<ffi::Span<const int64_t>>(name, "an array of i64");
  return std::vector<int64_t>(values.begin(), values.end());
}

std::unique_ptr<Attributes> FfiAttributes::Nested(const std::string& name) const {
  return std::make_unique<FfiAttributes>(Get<ffi::Dictionary>(name, "a dictionary"));
}

}  // namespace hlo_dispatch
