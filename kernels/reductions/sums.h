// Sums of numbers side by side, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_REDUCTIONS_SUMS_H_
#define HLO_DISPATCH_REDUCTIONS_SUMS_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::reductions {

enum Term { kValues, kSquares, kTerms };
enum SumType { kSumF32, kSumF64, kSumBF16, kSumTypes };

struct SumArithmetic {
  const char* name;
  // By type and what is summed up of each number: of `count` numbers, any number of them.
  double (*sum[kSumTypes][kTerms])(const void* from, int64_t count);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const SumArithmetic kSumArithmetic;)

}  // namespace hlo_dispatch::reductions

#endif  // HLO_DISPATCH_REDUCTIONS_SUMS_H_
