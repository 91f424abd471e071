#include "c_api/attributes.h"

#include <memory>
#include <string>
#include <vector>

using hlo_dispatch::StoredAttributes;

hlo_dispatch_attributes* hlo_dispatch_attributes_new() { return new hlo_dispatch_attributes(); }

void hlo_dispatch_attributes_free(hlo_dispatch_attributes* attributes) { delete attributes; }

void hlo_dispatch_set_integer(hlo_dispatch_attributes* attributes, const char* name, int64_t value) {
  attributes->stored.Set(name, value);
}

void hlo_dispatch_set_real(hlo_dispatch_attributes* attributes, const char* name, double value) {
  attributes->stored.Set(name, value);
}

void hlo_dispatch_set_text(hlo_dispatch_attributes* attributes, const char* name, const char* value, size_t size) {
  attributes->stored.Set(name, std::string(value, size));
}

void hlo_dispatch_set_integers(hlo_dispatch_attributes* attributes, const char* name, const int64_t* values,
                               size_t count) {
  attributes->stored.Set(name, std::vector<int64_t>(values, values + count));
}

void hlo_dispatch_set_nested(hlo_dispatch_attributes* attributes, const char* name,
                             const hlo_dispatch_attributes* value) {
  attributes->stored.Set(name, std::make_shared<const StoredAttributes>(value->stored));
}

void hlo_dispatch_set_other(hlo_dispatch_attributes* attributes, const char* name) {
  attributes->stored.Set(name, std::monostate());
}
