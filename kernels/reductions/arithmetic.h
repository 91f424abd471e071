// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_REDUCTIONS_ARITHMETIC_H_
#define HLO_DISPATCH_REDUCTIONS_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::reductions {

// The first of the largest or smallest numbers, or the first that is none; f64 holds the numbers of all types.
struct Peak {
  double value;
  int64_t place;
};

enum Type { kF32, kF64, kBF16, kS32, kTypes };

struct Arithmetic {
  const char* name;
  // By type, the largest and the smallest of `count` numbers side by side, at least one.
  Peak (*find[kTypes][2])(const void* from, int64_t count);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::reductions

#endif  // HLO_DISPATCH_REDUCTIONS_ARITHMETIC_H_
