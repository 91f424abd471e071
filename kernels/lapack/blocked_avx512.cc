#include "lapack/blocked_avx512.h"

#include <immintrin.h>

#include "lapack/transpose.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

template <typename T>
struct Wide {
  // May lie anywhere in memory, and over elements.
  typedef T Unaligned __attribute__((vector_size(64), aligned(alignof(T)), may_alias));
  typedef T Vector __attribute__((vector_size(64)));
  static constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(T));
};

template <typename T>
inline typename Wide<T>::Vector Load(const T* from) {
  return *reinterpret_cast<const typename Wide<T>::Unaligned*>(from);
}

template <typename T>
inline void Store(T* to, typename Wide<T>::Vector value) {
  *reinterpret_cast<typename Wide<T>::Unaligned*>(to) = value;
}

// The bits of a vector without its signs: 0 for -0 too.
inline __m512i Magnitude(typename Wide<float>::Vector values) {
  return _mm512_and_si512(reinterpret_cast<__m512i>(values), _mm512_set1_epi32(0x7fffffff));
}
inline __m512i Magnitude(typename Wide<double>::Vector values) {
  return _mm512_and_si512(reinterpret_cast<__m512i>(values), _mm512_set1_epi64(0x7fffffffffffffff));
}

inline float Root(float value) { return __builtin_sqrtf(value); }
inline double Root(double value) { return __builtin_sqrt(value); }

// sums[q][v] = column q of a · gᵀ, rows of vector v.
template <typename T>
inline __attribute__((always_inline)) void Multiply(typename Wide<T>::Vector (&sums)[kColumns][3], const T* a,
                                                    int64_t depth, const T* g, int64_t g_stride) {
  constexpr int64_t lanes = Wide<T>::kLanes;
#pragma GCC unroll 8
  for (int q = 0; q < kColumns; ++q) {
    for (int v = 0; v < 3; ++v) sums[q][v] = typename Wide<T>::Vector{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    const auto a0 = Load(a), a1 = Load(a + lanes), a2 = Load(a + 2 * lanes);
    __builtin_prefetch(a + 8 * kRows<T>);
    __builtin_prefetch(a + 8 * kRows<T> + lanes);
    __builtin_prefetch(a + 8 * kRows<T> + 2 * lanes);
#pragma GCC unroll 8
    for (int q = 0; q < kColumns; ++q) {
      const T factor = g[q];
      sums[q][0] += a0 * factor;
      sums[q][1] += a1 * factor;
      sums[q][2] += a2 * factor;
    }
    a += kRows<T>;
    g += g_stride;
  }
}

// Stores a register tile of sums into a panel.
template <typename T>
inline __attribute__((always_inline)) void StoreSums(const typename Wide<T>::Vector (&sums)[kColumns][3], T* values) {
#pragma GCC unroll 8
  for (int q = 0; q < kColumns; ++q) {
    for (int v = 0; v < 3; ++v) Store(values + q * kRows<T> + v * Wide<T>::kLanes, sums[q][v]);
  }
}

}  // namespace

template <typename T>
void Pack(T* panel, const T* m, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
          int64_t padded) {
  constexpr int64_t height = kRows<T>;
  if (row_stride == 1 && rows == height) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < height; ++r) panel[c * height + r] = m[c * column_stride + r];
    }
  } else {
    int64_t first = 0;
    if (rows == height && (column_stride == 1 || column_stride == -1)) {
      for (; first + kSquare <= columns; first += kSquare) {
        // The one of the four columns that lies first in memory.
        const int64_t lowest = column_stride == 1 ? first : first + kSquare - 1;
        for (int64_t r = 0; r < height; r += kSquare) {
          TransposeSquare(m + r * row_stride + lowest * column_stride, row_stride, panel + lowest * height + r,
                          column_stride * height);
        }
      }
    }
    for (; first < columns; first += 16) {
      const int64_t last = first + 16 < columns ? first + 16 : columns;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = first; c < last; ++c) panel[c * height + r] = m[r * row_stride + c * column_stride];
      }
    }
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = rows; r < height; ++r) panel[c * height + r] = 0;
    }
  }
  for (int64_t i = columns * height; i < padded * height; ++i) panel[i] = 0;
}

template <typename T>
void Unpack(const T* panel, T* m, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
            int64_t lowest) {
  constexpr int64_t height = kRows<T>;
  if (row_stride == 1) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = c + lowest > 0 ? c + lowest : 0; r < rows; ++r) {
        m[c * column_stride + r] = panel[c * height + r];
      }
    }
    return;
  }
  int64_t first = 0;
  if (rows == height && columns <= -lowest + 1 && (column_stride == 1 || column_stride == -1)) {
    for (; first + kSquare <= columns; first += kSquare) {
      const int64_t begin = column_stride == 1 ? first : first + kSquare - 1;
      for (int64_t r = 0; r < height; r += kSquare) {
        TransposeSquare(panel + begin * height + r, column_stride * height, m + r * row_stride + begin * column_stride,
                        row_stride);
      }
    }
  }
  for (; first < columns; first += 16) {
    for (int64_t r = 0; r < rows; ++r) {
      int64_t last = first + 16 < columns ? first + 16 : columns;
      if (r - lowest + 1 < last) last = r - lowest + 1;
      for (int64_t c = first; c < last; ++c) m[r * row_stride + c * column_stride] = panel[c * height + r];
    }
  }
}

template <typename T>
void Subtract(T* c, const T* a, int64_t depth, const T* g, int64_t g_stride) {
  typename Wide<T>::Vector sums[kColumns][3];
  Multiply(sums, a, depth, g, g_stride);
#pragma GCC unroll 8
  for (int q = 0; q < kColumns; ++q) {
    for (int v = 0; v < 3; ++v) {
      T* place = c + q * kRows<T> + v * Wide<T>::kLanes;
      Store(place, Load(place) - sums[q][v]);
    }
  }
}

template <typename T>
void SubtractFrom(T* c, int64_t leading, const T* a, int64_t depth, const T* g, int64_t g_stride, int64_t rows,
                  int64_t columns, int64_t lowest, int64_t highest) {
  constexpr int64_t height = kRows<T>;
  typename Wide<T>::Vector sums[kColumns][3];
  Multiply(sums, a, depth, g, g_stride);
  const bool everything = rows == height && columns == kColumns && (lowest <= 1 - kColumns || highest >= height - 1);
  if (everything) {
#pragma GCC unroll 8
    for (int q = 0; q < kColumns; ++q) {
      for (int v = 0; v < 3; ++v) {
        T* place = c + q * leading + v * Wide<T>::kLanes;
        Store(place, Load(place) - sums[q][v]);
      }
    }
    return;
  }
  T values[kColumns * height];
  StoreSums(sums, values);
  for (int64_t q = 0; q < columns; ++q) {
    for (int64_t r = 0; r < rows; ++r) {
      if (r - q >= lowest || r - q <= highest) c[q * leading + r] -= values[q * height + r];
    }
  }
}

template <typename T>
void AddTo(T* c, int64_t leading, const T* a, int64_t depth, const T* g, int64_t g_stride, int64_t rows,
           int64_t columns, bool fresh) {
  constexpr int64_t height = kRows<T>;
  typename Wide<T>::Vector sums[kColumns][3];
  Multiply(sums, a, depth, g, g_stride);
  if (rows == height && columns == kColumns) {
#pragma GCC unroll 8
    for (int q = 0; q < kColumns; ++q) {
      for (int v = 0; v < 3; ++v) {
        T* place = c + q * leading + v * Wide<T>::kLanes;
        Store(place, fresh ? sums[q][v] : Load(place) + sums[q][v]);
      }
    }
    return;
  }
  T values[kColumns * height];
  StoreSums(sums, values);
  for (int64_t q = 0; q < columns; ++q) {
    for (int64_t r = 0; r < rows; ++r) {
      T* place = c + q * leading + r;
      *place = fresh ? values[q * height + r] : *place + values[q * height + r];
    }
  }
}

template <typename T>
Extent ExtentOf(const T* panel, int64_t columns) {
  Extent extent{columns, 0, true};
  typename Wide<T>::Vector rest{};
  for (int64_t c = 0; c < columns; ++c) {
    const T* column = panel + c * kRows<T>;
    bool is_zero = true;
    for (int v = 0; v < 3; ++v) {
      const auto values = Load(column + v * Wide<T>::kLanes);
      rest += values * T(0);
      is_zero = is_zero && _mm512_test_epi64_mask(Magnitude(values), Magnitude(values)) == 0;
    }
    if (is_zero) continue;
    if (extent.first == columns) extent.first = c;
    extent.last = c + 1;
  }
  for (int64_t lane = 0; lane < Wide<T>::kLanes; ++lane) extent.is_finite = extent.is_finite && rest[lane] == 0;
  return extent;
}

template <typename T>
void SolveTriangle(T* c, const T* triangle) {
  typename Wide<T>::Vector x[kColumns][3];
#pragma GCC unroll 8
  for (int q = 0; q < kColumns; ++q) {
#pragma GCC unroll 3
    for (int v = 0; v < 3; ++v) x[q][v] = Load(c + q * kRows<T> + v * Wide<T>::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < q; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < 3; ++v) x[q][v] -= x[r][v] * triangle[q * kColumns + r];
    }
#pragma GCC unroll 3
    for (int v = 0; v < 3; ++v) {
      x[q][v] *= triangle[q * kColumns + q];
      Store(c + q * kRows<T> + v * Wide<T>::kLanes, x[q][v]);
    }
  }
}

template <typename T>
int64_t FactorTriangle(T* c, int64_t first, int64_t size, T* triangle) {
  for (int64_t i = 0; i < kColumns * kColumns; ++i) triangle[i] = 0;
  for (int64_t q = 0; q < kColumns; ++q) triangle[q * kColumns + q] = 1;
  for (int64_t q = 0; q < size; ++q) {
    T* column = c + q * kRows<T> + first;
    T pivot = column[q];
    for (int64_t r = 0; r < q; ++r) pivot -= triangle[q * kColumns + r] * triangle[q * kColumns + r];
    if (!(pivot > 0)) return q;
    const T root = Root(pivot);
    column[q] = root;
    triangle[q * kColumns + q] = 1 / root;
    for (int64_t i = q + 1; i < size; ++i) {
      T sum = column[i];
      for (int64_t r = 0; r < q; ++r) sum -= triangle[i * kColumns + r] * triangle[q * kColumns + r];
      column[i] = triangle[i * kColumns + q] = sum / root;
    }
  }
  return size;
}

#define HLO_DISPATCH_BLOCKED(T)                                                                                      \
  template void Pack(T*, const T*, int64_t, int64_t, int64_t, int64_t, int64_t);                                     \
  template void Unpack(const T*, T*, int64_t, int64_t, int64_t, int64_t, int64_t);                                   \
  template void Subtract(T*, const T*, int64_t, const T*, int64_t);                                                  \
  template void SubtractFrom(T*, int64_t, const T*, int64_t, const T*, int64_t, int64_t, int64_t, int64_t, int64_t); \
  template void AddTo(T*, int64_t, const T*, int64_t, const T*, int64_t, int64_t, int64_t, bool);                    \
  template Extent ExtentOf(const T*, int64_t);                                                                       \
  template void SolveTriangle(T*, const T*);                                                                         \
  template int64_t FactorTriangle(T*, int64_t, int64_t, T*);
HLO_DISPATCH_BLOCKED(float)
HLO_DISPATCH_BLOCKED(double)

}  // namespace hlo_dispatch::lapack::blocked
