#include "common/element_type.h"

#include "common/failure.h"

namespace hlo_dispatch {

ElementType ElementTypeFromName(const std::string& name, const std::string& attribute, Integers integers) {
  if (name == "f32") return ElementType::kF32;
  if (name == "bf16") return ElementType::kBF16;
  if (name == "f16") return ElementType::kF16;
  if (name == "s8" && integers == Integers::kOfEightBits) return ElementType::kS8;
  if (name == "u8" && integers == Integers::kOfEightBits) return ElementType::kU8;
  Invalid("attribute '" + attribute + "': expected an element type of f32, bf16, f16" +
          (integers == Integers::kOfEightBits ? ", s8, u8" : "") + ", got '" + name + "'");
}

bool IsInteger(ElementType type) { return type == ElementType::kS8 || type == ElementType::kU8; }

const char* ElementTypeName(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return "f32";
    case ElementType::kBF16:
      return "bf16";
    case ElementType::kF16:
      return "f16";
    case ElementType::kS8:
      return "s8";
    case ElementType::kU8:
      return "u8";
  }
  return "?";
}

int64_t ElementBytes(ElementType type) {
  if (IsInteger(type)) return 1;
  return type == ElementType::kF32 ? 4 : 2;
}

}  // namespace hlo_dispatch
