// The arithmetic of this folder, once for each instruction set: plain, AVX2, AVX-512. Those files are compiled for
// processors this one may not be, so they include nothing of the rest but this and share no inline function with it.
#ifndef HLO_DISPATCH_CHANNELS_ARITHMETIC_H_
#define HLO_DISPATCH_CHANNELS_ARITHMETIC_H_

#include <cstdint>

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

extern const Arithmetic kPlainArithmetic;
extern const Arithmetic kAvx2Arithmetic;
extern const Arithmetic kAvx512Arithmetic;

}  // namespace hlo_dispatch::channels

#endif  // HLO_DISPATCH_CHANNELS_ARITHMETIC_H_
