// For processors with AVX-512.
#include "quantized_matmul/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 64;
}  // namespace
}  // namespace hlo_dispatch

#include "common/vectors.h"

namespace hlo_dispatch::quantized_matmul {
namespace {
// The sums of so many rows, and of so many rows and columns, are in registers.
constexpr int kMostRows = 8;
constexpr int kDotRows = 4, kDotColumns = 4;
}  // namespace
}  // namespace hlo_dispatch::quantized_matmul

#include "quantized_matmul/loops.h"

namespace hlo_dispatch::quantized_matmul {

const Arithmetic kAvx512Arithmetic = ArithmeticNamed("avx512");

}  // namespace hlo_dispatch::quantized_matmul
