// For every processor that there is a build for.
#include "quantized_matmul/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 16;
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

const Arithmetic kPlainArithmetic = ArithmeticNamed("plain");

}  // namespace hlo_dispatch::quantized_matmul
