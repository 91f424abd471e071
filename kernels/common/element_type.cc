#include "common/element_type.h"

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

struct Described {
  const char* name;
  int64_t bytes;
};

// In the order of the enumeration: what is accepted of them are neighbours.
constexpr Described kDescribed[] = {{"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"s8", 1},
                                    {"u8", 1},  {"s16", 2}, {"s32", 4},  {"pred", 1}};

const Described& Describe(ElementType type) { return kDescribed[static_cast<size_t>(type)]; }

struct Range {
  ElementType first, last;
};

Range RangeOf(Accepted accepted) {
  switch (accepted) {
    case Accepted::kFloats:
      return {ElementType::kF32, ElementType::kF16};
    case Accepted::kFloatsAndIntegers:
      return {ElementType::kF32, ElementType::kU8};
    case Accepted::kFloatsAndSums:
      return {ElementType::kF32, ElementType::kS32};
    case Accepted::kSinglesAndDoubles:
      return {ElementType::kF64, ElementType::kF32};
    case Accepted::kIntegers:
      return {ElementType::kS8, ElementType::kS32};
    case Accepted::kNumbers:
      return {ElementType::kF64, ElementType::kS32};
    case Accepted::kMask:
      break;
  }
  return {ElementType::kPred, ElementType::kPred};
}

}  // namespace

ElementType ElementTypeFromName(const std::string& name, const std::string& attribute, Accepted accepted) {
  const auto [first, last] = RangeOf(accepted);
  std::string valid;
  for (auto i = static_cast<int>(first); i <= static_cast<int>(last); ++i) {
    const auto type = static_cast<ElementType>(i);
    if (accepted == Accepted::kFloatsAndSums && type == ElementType::kS16) continue;
    if (name == kDescribed[i].name) return type;
    valid += (valid.empty() ? "" : ", ") + std::string(kDescribed[i].name);
  }
  Invalid("attribute '" + attribute + "': expected an element type of " + valid + ", got '" + name + "'");
}

bool IsInteger(ElementType type) { return type == ElementType::kS8 || type == ElementType::kU8; }
const char* ElementTypeName(ElementType type) { return Describe(type).name; }
int64_t ElementBytes(ElementType type) { return Describe(type).bytes; }

}  // namespace hlo_dispatch
