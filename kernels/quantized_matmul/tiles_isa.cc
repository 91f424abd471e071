// Products of many rows with integer weights.
#include "quantized_matmul/tiles.h"

#include "quantized_matmul/arithmetic.h"

namespace hlo_dispatch::quantized_matmul {
namespace {

template <typename P, bool kIsScaled = false>
constexpr Loops kLoops = {MultiplyTile<true, kIsScaled, P>, MultiplyTile<false, kIsScaled, P>};

template <bool kIsFourBits, bool kIsScaled>
constexpr auto kPackedLoop = kReadsPacked ? MultiplyPackedTile<kIsFourBits, kIsScaled> : nullptr;

}  // namespace

namespace HLO_DISPATCH_ISA {
const Tiles kTiles = {
    HLO_DISPATCH_ISA_NAME,
    kMultipliesBf16,
    kTileColumns,
    kWidenedNumbers + kScaleNumbers + kLine / 4,
    {kLoops<FourBits>, kLoops<const int8_t*>, {}, {}, kLoops<FourBits, true>, kLoops<const int8_t*, true>},
    {kPackedLoop<true, false>, kPackedLoop<false, false>, kPackedLoop<true, true>, kPackedLoop<false, true>}};
}

}  // namespace hlo_dispatch::quantized_matmul
