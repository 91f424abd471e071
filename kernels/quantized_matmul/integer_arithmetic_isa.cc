// Products of a source that is rounded to eight bits with integer weights.
#include "quantized_matmul/integer_arithmetic.h"

#include "quantized_matmul/integer_source.h"
#include "quantized_matmul/integer_tiles.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

template <bool kIsFourBits, bool kIsScaled>
constexpr IntegerLoops kLoops = {MultiplyTile<true, kIsFourBits, kIsScaled>,
                                 MultiplyTile<false, kIsFourBits, kIsScaled>};

}  // namespace

namespace HLO_DISPATCH_ISA {
const IntegerArithmetic kIntegerArithmetic = {
    HLO_DISPATCH_ISA_NAME, kBlockRows,           kTileColumns,       ScratchBytes,       RoundRows<kBlockRows>,
    kLoops<true, false>,   kLoops<false, false>, kLoops<true, true>, kLoops<false, true>};
}

}  // namespace hlo_dispatch::quantized_matmul
