// For processors with AVX-512.
namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 64;
}  // namespace
}  // namespace hlo_dispatch

#include "common/peak_loop.h"

namespace hlo_dispatch {

const PeakArithmetic kAvx512Peak = RunRounds;

}  // namespace hlo_dispatch
