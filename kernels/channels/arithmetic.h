// The arithmetic of this folder, once for each instruction set (common/vectors.h).
#ifndef HLO_DISPATCH_CHANNELS_ARITHMETIC_H_
#define HLO_DISPATCH_CHANNELS_ARITHMETIC_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch::channels {

// Numbers of one element type, f32 or bf16. Rows lie behind one another, each of them the channels side by side.
struct Loops {
  // to[row][channel] = from[row][channel] * factors[channel] + shifts[channel]; `to` may be `from`, and null shifts
  // are none.
  void (*scale)(const void* from, const float* factors, const float* shifts, int64_t rows, int64_t channels, void* to);
  // sums[channel] += from[row][channel], over all rows.
  void (*add)(const void* from, int64_t rows, int64_t channels, float* sums);
};

struct Arithmetic {
  const char* name;
  Loops f32, bf16;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::channels

#endif  // HLO_DISPATCH_CHANNELS_ARITHMETIC_H_
