#include "common/sigmoid.h"

#include "common/vectors.h"

namespace hlo_dispatch {

namespace {

// In place: body(x), of vectors.
template <typename Body>
HLO_DISPATCH_INLINE void EachVector(float* values, int64_t count, Body body) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t lanes = count - i < kLanes ? count - i : kLanes;
    StoreNumbers(values + i, body(LoadNumbers(values + i, lanes)), lanes);
  }
}

void SigmoidOf(float* values, int64_t count, float alpha, bool times_argument) {
  if (times_argument)
    EachVector(values, count, [=](Vector x) { return x * Sigmoid(x * alpha); });
  else
    EachVector(values, count, [=](Vector x) { return Sigmoid(x * alpha); });
}

void TanhOf(float* values, int64_t count) {
  EachVector(values, count, [](Vector x) { return Tanh(x); });
}

// (1 + tanh(u)) / 2 is the sigmoid of 2 u, which loses no digits where it is near 0.
void GeluTanhOf(float* values, int64_t count) {
  constexpr float factor = 1.5957691216f;  // twice the square root of 2 / pi
  EachVector(values, count, [=](Vector x) { return x * Sigmoid(factor * (x + 0.044715f * x * x * x)); });
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const SigmoidArithmetic kSigmoidArithmetic = {HLO_DISPATCH_ISA_NAME, SigmoidOf, TanhOf, GeluTanhOf};
}  // namespace HLO_DISPATCH_ISA

}  // namespace hlo_dispatch
