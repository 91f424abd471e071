#include "common/element_type.h"

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

struct Described {
  const char* name;
  int64_t bytes;
};

// In the order of the enumeration: what is accepted of them are neighbours.
constexpr Described kDescribed[] = {{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"s8", 1}, {"u8", 1}, {"pred", 1}};

const Described& Describe(ElementType type) { return kDescribed[static_cast<size_t>(type)]; }

}  // namespace

ElementType ElementTypeFromName(const std::string& name, const std::string& attribute, Accepted accepted) {
  const ElementType first = accepted == Accepted::kMask ? ElementType::kPred : ElementType::kF32;
  const ElementType last = accepted == Accepted::kFloats ? ElementType::kF16
                           : accepted == Accepted::kMask ? ElementType::kPred
                                                         : ElementType::kU8;
  std::string valid;
  for (auto i = static_cast<int>(first); i <= static_cast<int>(last); ++i) {
    if (name == kDescribed[i].name) return static_cast<ElementType>(i);
    valid += (valid.empty() ? "" : ", ") + std::string(kDescribed[i].name);
  }
  Invalid("attribute '" + attribute + "': expected an element type of " + valid + ", got '" + name + "'");
}

bool IsInteger(ElementType type) { return type == ElementType::kS8 || type == ElementType::kU8; }
const char* ElementTypeName(ElementType type) { return Describe(type).name; }
int64_t ElementBytes(ElementType type) { return Describe(type).bytes; }

}  // namespace hlo_dispatch
