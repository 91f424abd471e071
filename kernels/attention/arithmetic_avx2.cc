// For processors with AVX2 and FMA.
#include "attention/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 32;
}  // namespace
}  // namespace hlo_dispatch

#include "common/vectors.h"

namespace hlo_dispatch::attention {
namespace {
// With six rows, 12 of the 16 registers hold sums.
constexpr int kMostVectors = 2;
constexpr int kMostRows[kMostVectors] = {8, 6};
using Pairs = NoPairs;
}  // namespace
}  // namespace hlo_dispatch::attention

#include "attention/products.h"
#include "attention/rows.h"

namespace hlo_dispatch::attention {

const Arithmetic kAvx2Arithmetic = ArithmeticNamed("avx2");

}  // namespace hlo_dispatch::attention
