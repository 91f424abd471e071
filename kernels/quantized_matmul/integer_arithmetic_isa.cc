// Products of a source that is rounded to eight bits with integer weights.
#include "quantized_matmul/integer_arithmetic.h"

#include "quantized_matmul/integer_source.h"
#include "quantized_matmul/integer_tiles.h"
#include "quantized_matmul/packed_rows.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

template <bool kIsFourBits, bool kIsScaled>
constexpr IntegerLoops kLoops = {MultiplyTile<WeightsOrder::kRows, kIsFourBits, kIsScaled>,
                                 MultiplyTile<WeightsOrder::kColumns, kIsFourBits, kIsScaled>,
                                 kReadsPacked ? MultiplyTile<WeightsOrder::kPacked, kIsFourBits, kIsScaled> : nullptr};

}  // namespace

namespace HLO_DISPATCH_ISA {
const IntegerArithmetic kIntegerArithmetic = {
    HLO_DISPATCH_ISA_NAME, kBlockRows,           kTileColumns,       ScratchBytes,        RoundRows<kBlockRows>,
    kLoops<true, false>,   kLoops<false, false>, kLoops<true, true>, kLoops<false, true>, kSplitProducts};
}

}  // namespace hlo_dispatch::quantized_matmul
