// Rows of f16 widened and narrowed, a vector at a time where the processor converts them.
#include <cstdint>

#include "common/vectors.h"
#include "onednn/half_arithmetic.h"

namespace hlo_dispatch::onednn {
namespace {

void Widen(const void* halves, int64_t stride, int64_t count, void* numbers) {
  const auto* from = static_cast<const AnyHalf*>(halves);
  auto* to = static_cast<AnyFloat*>(numbers);
  int64_t i = 0;
#ifdef __AVX512F__
  const auto all = static_cast<__mmask16>(-1);
  for (; stride == 1 && i + kLanes <= count; i += kLanes) {
    const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_ps(to + i, _mm512_maskz_cvtph_ps(all, vector));
  }
#endif
  for (; i < count; ++i) to[i] = FromF16(from[i * stride]);
}

void Narrow(const void* numbers, int64_t stride, int64_t count, void* halves) {
  const auto* from = static_cast<const AnyFloat*>(numbers);
  auto* to = static_cast<AnyHalf*>(halves);
  int64_t i = 0;
#ifdef __AVX512F__
  const auto all = static_cast<__mmask16>(-1);
  for (; stride == 1 && i + kLanes <= count; i += kLanes) {
    const __m512 vector = _mm512_loadu_ps(from + i);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm512_maskz_cvtps_ph(all, vector, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#endif
  for (; i < count; ++i) to[i * stride] = ToF16(from[i]);
}

}  // namespace

namespace HLO_DISPATCH_ISA {
const HalfArithmetic kHalfArithmetic = {Widen, Narrow};
}

}  // namespace hlo_dispatch::onednn
