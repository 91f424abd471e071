// For processors with AVX-512.
#include "attention/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 64;
}  // namespace
}  // namespace hlo_dispatch

#include "common/vectors.h"

namespace hlo_dispatch::attention {
namespace {
// With six rows, 24 of the 32 registers hold sums.
constexpr int kMostVectors = 4;
constexpr int kMostRows[kMostVectors] = {8, 12, 8, 6};
using Pairs = NoPairs;
}  // namespace
}  // namespace hlo_dispatch::attention

#include "attention/products.h"
#include "attention/rows.h"

namespace hlo_dispatch::attention {

const Arithmetic kAvx512Arithmetic = ArithmeticNamed("avx512");

}  // namespace hlo_dispatch::attention
