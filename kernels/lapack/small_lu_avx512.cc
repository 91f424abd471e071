#include "lapack/small_lu_avx512.h"

#include <immintrin.h>

#include <utility>  // types only: a function of it compiled here might be called elsewhere

namespace hlo_dispatch::lapack::blocked {

namespace {

// What differs between the element types.
template <typename T>
struct Simd;

template <>
struct Simd<float> {
  using Vector = __m512;
  using Mask = __mmask16;
  static Vector Load(const float* at) { return _mm512_loadu_ps(at); }
  static void Store(float* at, Vector x) { _mm512_storeu_ps(at, x); }
  static Vector All(float x) { return _mm512_set1_ps(x); }
  static Vector Zero() { return _mm512_setzero_ps(); }
  // |x| where the mask has it, 0 elsewhere.
  static Vector Size(Mask mask, Vector x) {
    return _mm512_maskz_and_ps(mask, x, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff)));
  }
  static Vector Larger(Vector x, Vector y) { return _mm512_maskz_max_ps(0xffff, x, y); }
  static Vector Exchanged(Vector x, Mask mask, Vector y) { return _mm512_mask_mov_ps(x, mask, y); }
  static Vector Quotient(Vector x, Mask mask, Vector y) { return _mm512_mask_div_ps(x, mask, x, y); }
  // x - l * u where the mask has it.
  static Vector Minus(Vector x, Mask mask, Vector l, Vector u) { return _mm512_mask3_fnmadd_ps(l, u, x, mask); }
  static Mask Equal(Mask mask, Vector x, Vector y) { return _mm512_mask_cmp_ps_mask(mask, x, y, _CMP_EQ_OQ); }
  static Mask NotANumber(Mask mask, Vector x) { return _mm512_mask_cmp_ps_mask(mask, x, x, _CMP_UNORD_Q); }
  // The largest element, everywhere: pairs at distance 8, 4, 2 and 1.
  static Vector Largest(Vector x) {
    x = Larger(x, _mm512_maskz_shuffle_f32x4(0xffff, x, x, 0x4e));
    x = Larger(x, _mm512_maskz_shuffle_f32x4(0xffff, x, x, 0xb1));
    x = Larger(x, _mm512_maskz_permute_ps(0xffff, x, 0x4e));
    return Larger(x, _mm512_maskz_permute_ps(0xffff, x, 0xb1));
  }
};

template <>
struct Simd<double> {
  using Vector = __m512d;
  using Mask = __mmask8;
  static Vector Load(const double* at) { return _mm512_loadu_pd(at); }
  static void Store(double* at, Vector x) { _mm512_storeu_pd(at, x); }
  static Vector All(double x) { return _mm512_set1_pd(x); }
  static Vector Zero() { return _mm512_setzero_pd(); }
  static Vector Size(Mask mask, Vector x) {
    return _mm512_maskz_and_pd(mask, x, _mm512_castsi512_pd(_mm512_set1_epi64(0x7fffffffffffffff)));
  }
  static Vector Larger(Vector x, Vector y) { return _mm512_maskz_max_pd(0xff, x, y); }
  static Vector Exchanged(Vector x, Mask mask, Vector y) { return _mm512_mask_mov_pd(x, mask, y); }
  static Vector Quotient(Vector x, Mask mask, Vector y) { return _mm512_mask_div_pd(x, mask, x, y); }
  static Vector Minus(Vector x, Mask mask, Vector l, Vector u) { return _mm512_mask3_fnmadd_pd(l, u, x, mask); }
  static Mask Equal(Mask mask, Vector x, Vector y) { return _mm512_mask_cmp_pd_mask(mask, x, y, _CMP_EQ_OQ); }
  static Mask NotANumber(Mask mask, Vector x) { return _mm512_mask_cmp_pd_mask(mask, x, x, _CMP_UNORD_Q); }
  static Vector Largest(Vector x) {
    x = Larger(x, _mm512_maskz_shuffle_f64x2(0xff, x, x, 0x4e));
    x = Larger(x, _mm512_maskz_shuffle_f64x2(0xff, x, x, 0xb1));
    return Larger(x, _mm512_maskz_permute_pd(0xff, x, 0x55));
  }
};

// Bits of the rows [from, to) of vector `v`.
template <typename T>
typename Simd<T>::Mask Rows(int64_t from, int64_t to, int64_t v) {
  const auto below = [&](int64_t row) {
    const int64_t count = row - v * kSmallLanes<T>;
    return count <= 0 ? 0u : count >= kSmallLanes<T> ? (1u << kSmallLanes<T>)-1 : (1u << count) - 1;
  };
  return static_cast<typename Simd<T>::Mask>(below(to) & ~below(from));
}

// The row of the largest element of a column, from row `j` on, which is in vector kFirst. What is not a number is
// largest, that it may spread as it does where one divides by it.
template <typename T, int kFirst, int kVectors>
int64_t Pivot(const typename Simd<T>::Vector* x, int64_t j, int64_t m) {
  using S = Simd<T>;
  typename S::Vector sizes[kVectors], largest = S::Zero();
  typename S::Mask rows[kVectors];
#pragma GCC unroll 8
  for (int v = kFirst; v < kVectors; ++v) {
    rows[v] = Rows<T>(j, m, v);
    sizes[v] = S::Size(rows[v], x[v]);
    largest = S::Larger(sizes[v], largest);
  }
  uint64_t bad = 0, best = 0;
  largest = S::Largest(largest);
#pragma GCC unroll 8
  for (int v = kFirst; v < kVectors; ++v) {
    bad |= static_cast<uint64_t>(S::NotANumber(rows[v], sizes[v])) << (v * kSmallLanes<T>);
    best |= static_cast<uint64_t>(S::Equal(rows[v], sizes[v], largest)) << (v * kSmallLanes<T>);
  }
  return __builtin_ctzll(bad != 0 ? bad : best);
}

// Factors the columns whose diagonal is in vector kFirst: for each the pivot, the multipliers, and the rank-1 update of
// the trailing columns, which are independent of one another. Rows from m on are undefined.
template <typename T, int kFirst, int kVectors>
void FactorColumns(int64_t m, int64_t n, T* a, int64_t leading, int* pivots, int* info) {
  using S = Simd<T>;
  using Vector = typename S::Vector;
  using Mask = typename S::Mask;
  const int64_t shorter = m < n ? m : n, behind_vector = (kFirst + 1) * kSmallLanes<T>;
  const int64_t end = shorter < behind_vector ? shorter : behind_vector;
  for (int64_t j = kFirst * kSmallLanes<T>; j < end; ++j) {
    T* column = a + j * leading;
    Vector quotients[kVectors];
#pragma GCC unroll 8
    for (int v = kFirst; v < kVectors; ++v) quotients[v] = S::Load(column + v * kSmallLanes<T>);
    const int64_t p = Pivot<T, kFirst, kVectors>(quotients, j, m);
    pivots[j] = static_cast<int>(p + 1);
    const T pivot = column[p], given = column[j];
    if (pivot == 0 && *info == 0) *info = static_cast<int>(j + 1);
    const Mask is_j = Rows<T>(j, j + 1, kFirst), behind = Rows<T>(j + 1, m, kFirst);
    Mask is_p[kVectors];
#pragma GCC unroll 8
    for (int v = kFirst; v < kVectors; ++v) {
      is_p[v] = Rows<T>(p, p + 1, v);
      Vector x = S::Exchanged(quotients[v], is_p[v], S::All(given));
      if (v == kFirst) x = S::Exchanged(x, is_j, S::All(pivot));
      if (pivot != 0) x = S::Quotient(x, v == kFirst ? behind : static_cast<Mask>(-1), S::All(pivot));
      S::Store(column + v * kSmallLanes<T>, x);
      quotients[v] = x;
    }
    if (p != j) {
      for (int64_t c = 0; c < j; ++c) {
        const T kept = a[c * leading + j];
        a[c * leading + j] = a[c * leading + p];
        a[c * leading + p] = kept;
      }
    }
    for (int64_t c = j + 1; c < n; ++c) {
      T* other = a + c * leading;
      const Vector upper = S::All(other[p]), lower = S::All(other[j]);
#pragma GCC unroll 8
      for (int v = kFirst; v < kVectors; ++v) {
        Vector x = S::Exchanged(S::Load(other + v * kSmallLanes<T>), is_p[v], lower);
        if (v == kFirst) x = S::Exchanged(x, is_j, upper);
        x = S::Minus(x, v == kFirst ? behind : static_cast<Mask>(-1), quotients[v], upper);
        S::Store(other + v * kSmallLanes<T>, x);
      }
    }
  }
}

template <typename T, int... kFirst>
void Factor(int64_t m, int64_t n, T* a, int64_t leading, int* pivots, int* info,
            std::integer_sequence<int, kFirst...>) {
  (FactorColumns<T, kFirst, sizeof...(kFirst)>(m, n, a, leading, pivots, info), ...);
}

template <typename T, int kVectors>
void FactorOf(int64_t m, int64_t n, T* a, int64_t leading, int* pivots, int* info) {
  Factor(m, n, a, leading, pivots, info, std::make_integer_sequence<int, kVectors>());
}

// One for each number of vectors.
template <typename T, int... kBefore>
void Choose(int64_t m, int64_t n, T* a, int64_t leading, int* pivots, int* info,
            std::integer_sequence<int, kBefore...>) {
  using Function = void (*)(int64_t, int64_t, T*, int64_t, int*, int*);
  static constexpr Function table[] = {FactorOf<T, kBefore + 1>...};
  table[(m - 1) / kSmallLanes<T>](m, n, a, leading, pivots, info);
}

}  // namespace

template <typename T>
void FactorSmall(int64_t m, int64_t n, T* a, int64_t leading, int* pivots, int* info) {
  *info = 0;
  constexpr int most = static_cast<int>(kMaxSmallRows / kSmallLanes<T>);
  if (m > 0) Choose(m, n, a, leading, pivots, info, std::make_integer_sequence<int, most>());
}

template void FactorSmall(int64_t, int64_t, float*, int64_t, int*, int*);
template void FactorSmall(int64_t, int64_t, double*, int64_t, int*, int*);

}  // namespace hlo_dispatch::lapack::blocked
