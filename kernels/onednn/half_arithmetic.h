// Rows of f16 in f32 and back, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_ONEDNN_HALF_ARITHMETIC_H_
#define HLO_DISPATCH_ONEDNN_HALF_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::onednn {

// `count` numbers, side by side in f32 and `stride` elements apart in f16; those are rounded to nearest, ties to even.
struct HalfArithmetic {
  void (*widen)(const void* halves, int64_t stride, int64_t count, void* numbers);
  void (*narrow)(const void* numbers, int64_t stride, int64_t count, void* halves);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const HalfArithmetic kHalfArithmetic;)

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_HALF_ARITHMETIC_H_
