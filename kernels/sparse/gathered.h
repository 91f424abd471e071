// Sums of rows that lie anywhere, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_SPARSE_GATHERED_H_
#define HLO_DISPATCH_SPARSE_GATHERED_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::sparse {

// Rows of equal length, and where their sum goes.
struct GatheredRows {
  const char* const* rows;  // where each begins
  int64_t count;
  int64_t known;  // rows of which is known where they begin, at least `count`: the next sum's are fetched ahead
  int64_t width;
  double factor;  // of the sum
  void* to;
};

// By the element types of the rows and of the sum.
enum GatheredType { kGatheredF32, kGatheredF64, kGatheredBf16, kGatheredBf16ToF32, kGatheredTypes };

struct GatheredArithmetic {
  const char* name;
  void (*sum[kGatheredTypes])(const GatheredRows& gathered);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const GatheredArithmetic kGatheredArithmetic;)

}  // namespace hlo_dispatch::sparse

#endif  // HLO_DISPATCH_SPARSE_GATHERED_H_
