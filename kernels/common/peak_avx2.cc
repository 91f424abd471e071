// For processors with AVX2 and FMA.
namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 32;
}  // namespace
}  // namespace hlo_dispatch

#include "common/peak_loop.h"

namespace hlo_dispatch {

const PeakArithmetic kAvx2Peak = RunRounds;

}  // namespace hlo_dispatch
