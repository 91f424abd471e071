// For every processor that there is a build for.
namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 16;
}  // namespace
}  // namespace hlo_dispatch

#include "common/peak_loop.h"

namespace hlo_dispatch {

const PeakArithmetic kPlainPeak = RunRounds;

}  // namespace hlo_dispatch
