// For processors with AVX2.
#include "channels/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 32;
}  // namespace
}  // namespace hlo_dispatch

#include "channels/loops.h"

namespace hlo_dispatch::channels {

const Arithmetic kAvx2Arithmetic = ArithmeticNamed("avx2");

}  // namespace hlo_dispatch::channels
