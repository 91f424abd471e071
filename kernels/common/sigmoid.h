// Arithmetic of sigmoids, their products with their arguments, and hyperbolic tangents in vectors, compiled once for
// each instruction set (common/vectors.h): activations of our own kernels, which ask no library for functions.
#ifndef HLO_DISPATCH_COMMON_SIGMOID_H_
#define HLO_DISPATCH_COMMON_SIGMOID_H_

#include <cstdint>

#include "common/isa.h"

namespace hlo_dispatch {

struct SigmoidArithmetic {
  const char* name;
  // In place: 1 / (1 + exp(-alpha * x)), times x where `times_argument`.
  void (*sigmoid)(float* values, int64_t count, float alpha, bool times_argument);
  void (*tanh)(float* values, int64_t count);
  void (*gelu_tanh)(float* values, int64_t count);
};

HLO_DISPATCH_FOR_EACH_ISA(extern const SigmoidArithmetic kSigmoidArithmetic;)

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SIGMOID_H_
