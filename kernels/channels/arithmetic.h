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
  // sums[channel] += from[row][channel], squares[channel] += its square, over all rows, in f64.
  void (*add_squares)(const void* from, int64_t rows, int64_t channels, double* sums, double* squares);
  // to[row][channel] = f((from[row][channel] - means[channel]) * factors[channel] + shifts[channel]), where f is
  // x / (1 + exp(-x)) or nothing; `to` may be `from`.
  void (*normalize)(const void* from, const float* means, const float* factors, const float* shifts, bool swish,
                    int64_t rows, int64_t channels, void* to);
};

struct Arithmetic {
  const char* name;
  Loops f32, bf16;
};

HLO_DISPATCH_FOR_EACH_ISA(extern const Arithmetic kArithmetic;)

}  // namespace hlo_dispatch::channels

#endif  // HLO_DISPATCH_CHANNELS_ARITHMETIC_H_
