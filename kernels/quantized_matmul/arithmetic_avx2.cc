// For processors with AVX2 and FMA.
#include "quantized_matmul/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 32;
}  // namespace
}  // namespace hlo_dispatch

#include "common/vectors.h"

namespace hlo_dispatch::quantized_matmul {
namespace {
// The sums of so many rows, and of so many rows and columns, are in registers.
constexpr int kMostRows = 4;
constexpr int kDotRows = 2, kDotColumns = 4;
}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#include "quantized_matmul/loops.h"

namespace hlo_dispatch::quantized_matmul {

const Arithmetic kAvx2Arithmetic = ArithmeticNamed("avx2");

}  // namespace hlo_dispatch::quantized_matmul
