// For every processor that there is a build for.
#include "channels/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 16;
}  // namespace
}  // namespace hlo_dispatch

#include "channels/loops.h"

namespace hlo_dispatch::channels {

const Arithmetic kPlainArithmetic = ArithmeticNamed("plain");

}  // namespace hlo_dispatch::channels
