#include "lapack/lanes_avx512.h"

#include <immintrin.h>

#include "lapack/transpose.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

// Rows of a tile: enough independent sums to hide the latency of a multiply-add.
constexpr int64_t kRowsAtOnce = 4;

template <typename T>
struct Lane {
  typedef T Vector __attribute__((vector_size(64), may_alias));
};

// Not _mm512_sqrt_ps, whose undefined lanes GCC 12 warns of.
inline Lane<float>::Vector Root(Lane<float>::Vector value) {
  return reinterpret_cast<Lane<float>::Vector>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(value)));
}
inline Lane<double>::Vector Root(Lane<double>::Vector value) {
  return reinterpret_cast<Lane<double>::Vector>(_mm512_maskz_sqrt_pd(0xff, reinterpret_cast<__m512d>(value)));
}

// Calls square(x, y) for the whole squares of elements and single(x, y) for the rest.
template <typename Square, typename Single>
inline void ForElements(int64_t n, const Square& square, const Single& single) {
  for (int64_t x = 0; x < n; ++x) {
    int64_t y = 0;
    for (; y + kSquare <= n; y += kSquare) square(x, y);
    for (; y < n; ++y) single(x, y);
  }
}

}  // namespace

template <typename T>
void LoadLanes(T* s, int64_t row, const T* from, const BatchStrides& strides, int64_t n, int64_t count) {
  constexpr int64_t lanes = kLanes<T>;
  const auto single = [&](int64_t x, int64_t y) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t matrix = lane < count ? lane : count - 1;
      s[(x * row + y) * lanes + lane] = from[matrix * strides.matrix + x * strides.row + y * strides.column];
    }
  };
  if (count < lanes || (strides.column != 1 && strides.row != 1)) {
    ForElements(
        n,
        [&](int64_t x, int64_t y) {
          for (int64_t k = 0; k < kSquare; ++k) single(x, y + k);
        },
        single);
    return;
  }
  // Four neighbours in memory of four matrices at a time: along a row, or along a column.
  const bool is_row_major = strides.column == 1;
  const int64_t step = (is_row_major ? 1 : row) * lanes;
  ForElements(
      n,
      [&](int64_t p, int64_t q) {
        const int64_t x = is_row_major ? p : q, y = is_row_major ? q : p;
        for (int64_t lane = 0; lane < lanes; lane += kSquare) {
          TransposeSquare(from + lane * strides.matrix + x * strides.row + y * strides.column, strides.matrix,
                          s + (x * row + y) * lanes + lane, step);
        }
      },
      [&](int64_t p, int64_t q) { is_row_major ? single(p, q) : single(q, p); });
}

template <typename T>
void StoreLanes(const T* s, int64_t row, T* to, const BatchStrides& strides, int64_t n, int64_t count) {
  constexpr int64_t lanes = kLanes<T>;
  const auto single = [&](int64_t x, int64_t y) {
    for (int64_t lane = 0; lane < count; ++lane) {
      to[lane * strides.matrix + x * strides.row + y * strides.column] = s[(x * row + y) * lanes + lane];
    }
  };
  if (count < lanes || strides.column != 1) {
    ForElements(
        n,
        [&](int64_t x, int64_t y) {
          for (int64_t k = 0; k < kSquare; ++k) single(x, y + k);
        },
        single);
    return;
  }
  ForElements(
      n,
      [&](int64_t x, int64_t y) {
        for (int64_t lane = 0; lane < lanes; lane += kSquare) {
          TransposeSquare(s + (x * row + y) * lanes + lane, lanes, to + lane * strides.matrix + x * strides.row + y,
                          strides.matrix);
        }
      },
      single);
}

template <typename T>
void SymmetriseLanes(T* s, int64_t row, int64_t n) {
  using Vector = typename Lane<T>::Vector;
  auto* at = reinterpret_cast<Vector*>(s);
  for (int64_t x = 0; x < n; ++x) {
    for (int64_t y = 0; y < x; ++y) {
      const Vector half = (at[x * row + y] + at[y * row + x]) * T(0.5);
      at[x * row + y] = at[y * row + x] = half;
    }
  }
}

template <typename T>
void FactorLanes(T* s, int64_t n, int64_t row, int64_t column, int* info) {
  using Vector = typename Lane<T>::Vector;
  auto* at = reinterpret_cast<Vector*>(s);
  for (int64_t lane = 0; lane < kLanes<T>; ++lane) info[lane] = 0;
  for (int64_t j = 0; j < n; ++j) {
    const Vector* pivots = at + j * row;
    Vector inverse{};
    for (int64_t i = j; i < n; i += kRowsAtOnce) {
      Vector sums[kRowsAtOnce];
      Vector* rows[kRowsAtOnce];
      for (int64_t q = 0; q < kRowsAtOnce; ++q) {
        // Rows beyond the last one repeat it.
        rows[q] = at + (i + q < n ? i + q : n - 1) * row;
        sums[q] = rows[q][j * column];
      }
      for (int64_t k = 0; k < j; ++k) {
        const Vector factor = pivots[k * column];
#pragma GCC unroll 4
        for (int64_t q = 0; q < kRowsAtOnce; ++q) sums[q] -= rows[q][k * column] * factor;
      }
      if (i == j) {
        for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
          if (!(sums[0][lane] > 0) && info[lane] == 0) info[lane] = static_cast<int>(j + 1);
        }
        const Vector root = Root(sums[0]);
        inverse = T(1) / root;
        rows[0][j * column] = root;
      }
      for (int64_t q = i == j ? 1 : 0; q < kRowsAtOnce && i + q < n; ++q) rows[q][j * column] = sums[q] * inverse;
    }
  }
}

#define HLO_DISPATCH_LANES(T)                                                             \
  template void LoadLanes(T*, int64_t, const T*, const BatchStrides&, int64_t, int64_t);  \
  template void StoreLanes(const T*, int64_t, T*, const BatchStrides&, int64_t, int64_t); \
  template void SymmetriseLanes(T*, int64_t, int64_t);                                    \
  template void FactorLanes(T*, int64_t, int64_t, int64_t, int*);
HLO_DISPATCH_LANES(float)
HLO_DISPATCH_LANES(double)

}  // namespace hlo_dispatch::lapack::blocked
