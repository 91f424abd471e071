// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_REDUCTIONS_ARITHMETIC_H_
#define HLO_DISPATCH_REDUCTIONS_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::reductions {

// The first of the largest numbers, or the first that is none.
struct Peak {
  float value;
  int64_t place;
};

struct Arithmetic {
  const char* name;
  // Of `count` numbers side by side, at least one.
  Peak (*f32)(const void* from, int64_t count);
  Peak (*bf16)(const void* from, int64_t count);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::reductions

#endif  // HLO_DISPATCH_REDUCTIONS_ARITHMETIC_H_
