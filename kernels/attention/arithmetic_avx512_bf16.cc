// For processors with AVX-512 that multiply pairs of bf16.
#include "attention/arithmetic.h"

namespace hlo_dispatch {
namespace {
constexpr int kVectorBytes = 64;
}  // namespace
}  // namespace hlo_dispatch

#include <immintrin.h>

#include "common/vectors.h"

namespace hlo_dispatch::attention {
namespace {
constexpr int kMostVectors = 4;
constexpr int kMostRows[kMostVectors] = {8, 12, 8, 6};
struct Pairs {
  static constexpr bool kExist = true;
  static constexpr int64_t kBytes = 4;  // of two
  static HLO_DISPATCH_INLINE Vector Panel(const char* from) { return Load(reinterpret_cast<const float*>(from)); }
  static HLO_DISPATCH_INLINE Vector Add(Vector sum, float a, Vector b) {
    int32_t both;
    __builtin_memcpy(&both, &a, sizeof(both));
    return reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                     reinterpret_cast<__m512bh>(_mm512_set1_epi32(both)),
                                                     reinterpret_cast<__m512bh>(b)));
  }
  static HLO_DISPATCH_INLINE void StoreHalves(char* to, Vector value) {
    const auto halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
    __builtin_memcpy(to, &halves, sizeof(halves));
  }
  static HLO_DISPATCH_INLINE void StoreFirstHalves(char* to, Vector value, int64_t count) {
    const auto halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << count) - 1), reinterpret_cast<__m256i>(halves));
  }
};
}  // namespace
}  // namespace hlo_dispatch::attention

#include "attention/products.h"
#include "attention/rows.h"

namespace hlo_dispatch::attention {

const Arithmetic kAvx512Bf16Arithmetic = ArithmeticNamed("avx512_bf16");

}  // namespace hlo_dispatch::attention
