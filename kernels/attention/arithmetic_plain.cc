// For every processor that there is a build for.
#include "attention/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 16;
}  // namespace
}  // namespace hlo_dispatch

#include "common/vectors.h"

namespace hlo_dispatch::attention {
namespace {
constexpr int kMostVectors = 2;
constexpr int kMostRows[kMostVectors] = {8, 4};
using Pairs = NoPairs;
}  // namespace
}  // namespace hlo_dispatch::attention

#include "attention/products.h"
#include "attention/rows.h"

namespace hlo_dispatch::attention {

const Arithmetic kPlainArithmetic = ArithmeticNamed("plain");

}  // namespace hlo_dispatch::attention
