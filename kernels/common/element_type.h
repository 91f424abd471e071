// Element types by the names XLA and our attributes give them.
#ifndef HLO_DISPATCH_COMMON_ELEMENT_TYPE_H_
#define HLO_DISPATCH_COMMON_ELEMENT_TYPE_H_

#include <cstdint>
#include <string>

namespace hlo_dispatch {

// Integers only where a kernel says that it takes them (StridedArray, ReadArray).
enum class ElementType { kF32, kBF16, kF16, kS8, kU8 };

enum class Integers { kNone, kOfEightBits };

// Throws Failure(kInvalid), naming `attribute`, when `name` is unknown, or an integer type that the kernel does not
// take.
ElementType ElementTypeFromName(const std::string& name, const std::string& attribute,
                                Integers integers = Integers::kNone);
bool IsInteger(ElementType type);
const char* ElementTypeName(ElementType type);
int64_t ElementBytes(ElementType type);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_ELEMENT_TYPE_H_
