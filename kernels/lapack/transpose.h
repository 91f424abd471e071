// Small transposes in registers. Static, not inline: blocked_avx512.cc makes its own of them.
#ifndef HLO_DISPATCH_LAPACK_TRANSPOSE_H_
#define HLO_DISPATCH_LAPACK_TRANSPOSE_H_

#include <emmintrin.h>

#include <cstdint>

namespace hlo_dispatch::lapack {

inline constexpr int64_t kSquare = 4;

// to[c * to_stride + r] = from[r * from_stride + c] for four rows and columns of 4, 8 or 16 bytes each.
template <typename T>
static void TransposeSquare(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  if constexpr (sizeof(T) == 4) {
    const auto* rows = reinterpret_cast<const float*>(from);
    auto* columns = reinterpret_cast<float*>(to);
    __m128 a = _mm_loadu_ps(rows), b = _mm_loadu_ps(rows + from_stride), c = _mm_loadu_ps(rows + 2 * from_stride),
           d = _mm_loadu_ps(rows + 3 * from_stride);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(columns, a);
    _mm_storeu_ps(columns + to_stride, b);
    _mm_storeu_ps(columns + 2 * to_stride, c);
    _mm_storeu_ps(columns + 3 * to_stride, d);
  } else if constexpr (sizeof(T) == 8) {
    const auto* rows = reinterpret_cast<const double*>(from);
    auto* columns = reinterpret_cast<double*>(to);
    for (int r = 0; r < 4; r += 2) {
      for (int c = 0; c < 4; c += 2) {
        const __m128d a = _mm_loadu_pd(rows + r * from_stride + c), b = _mm_loadu_pd(rows + (r + 1) * from_stride + c);
        _mm_storeu_pd(columns + c * to_stride + r, _mm_unpacklo_pd(a, b));
        _mm_storeu_pd(columns + (c + 1) * to_stride + r, _mm_unpackhi_pd(a, b));
      }
    }
  } else {
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 4; ++c) to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

}  // namespace hlo_dispatch::lapack

#endif  // HLO_DISPATCH_LAPACK_TRANSPOSE_H_
