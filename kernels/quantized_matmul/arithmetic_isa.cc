// Sums of products with weights of all types.
#include "quantized_matmul/arithmetic.h"

#include "quantized_matmul/columns.h"
#include "quantized_matmul/rows.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

template <typename P, bool kIsScaled = false>
constexpr Loops kLoops = {ContiguousColumns<kIsScaled, P>, ContiguousRows<kIsScaled, P>};

}  // namespace

namespace HLO_DISPATCH_ISA {
const Arithmetic kArithmetic = {HLO_DISPATCH_ISA_NAME,
                                {kLoops<FourBits>, kLoops<const int8_t*>, kLoops<const Bf16*>, kLoops<const float*>,
                                 kLoops<FourBits, true>, kLoops<const int8_t*, true>}};
}

}  // namespace hlo_dispatch::quantized_matmul
