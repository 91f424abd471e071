// For processors with AVX-512.
#include "channels/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 64;
}  // namespace
}  // namespace hlo_dispatch

#include "channels/loops.h"

namespace hlo_dispatch::channels {

const Arithmetic kAvx512Arithmetic = ArithmeticNamed("avx512");

}  // namespace hlo_dispatch::channels
