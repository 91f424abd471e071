// Sums of products with weights of all types, in vectors of as many bytes as the file that includes this says.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_LOOPS_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_LOOPS_H_

#include "quantized_matmul/arithmetic.h"
#include "quantized_matmul/columns.h"
#include "quantized_matmul/rows.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

template <typename P, bool kIsScaled = false>
constexpr Loops kLoops = {ContiguousColumns<kIsScaled, P>, ContiguousRows<kIsScaled, P>};

Arithmetic ArithmeticNamed(const char* name) {
  return {name,
          kLoops<FourBits>,
          kLoops<const int8_t*>,
          kLoops<const Bf16*>,
          kLoops<const float*>,
          kLoops<FourBits, true>,
          kLoops<const int8_t*, true>};
}

}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_LOOPS_H_
