// Element types by the names XLA and our attributes give them.
#ifndef HLO_DISPATCH_COMMON_ELEMENT_TYPE_H_
#define HLO_DISPATCH_COMMON_ELEMENT_TYPE_H_

#include <cstdint>
#include <string>

namespace hlo_dispatch {

enum class ElementType { kF64, kF32, kBF16, kF16, kS8, kU8, kS16, kS32, kPred };

// Which of them an operand may have. Integers are of eight bits beside floats, and with sums of 32, too.
enum class Accepted { kFloats, kFloatsAndIntegers, kFloatsAndSums, kSinglesAndDoubles, kIntegers, kNumbers, kMask };

// Throws Failure(kInvalid), naming `attribute`, when `name` is none of the accepted ones.
ElementType ElementTypeFromName(const std::string& name, const std::string& attribute,
                                Accepted accepted = Accepted::kFloats);
bool IsInteger(ElementType type);
const char* ElementTypeName(ElementType type);
int64_t ElementBytes(ElementType type);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_ELEMENT_TYPE_H_
