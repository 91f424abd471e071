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

// |x|; not a comparison, which NaN and -0 would pass unchanged.
inline Lane<float>::Vector Size(Lane<float>::Vector value) {
  return reinterpret_cast<Lane<float>::Vector>(reinterpret_cast<__m512i>(value) & _mm512_set1_epi32(0x7fffffff));
}
inline Lane<double>::Vector Size(Lane<double>::Vector value) {
  return reinterpret_cast<Lane<double>::Vector>(reinterpret_cast<__m512i>(value) &
                                                _mm512_set1_epi64(0x7fffffffffffffff));
}

// The exponent of |x| as a whole number; x times two to the power of one.
inline Lane<float>::Vector Exponent(Lane<float>::Vector value) {
  return reinterpret_cast<Lane<float>::Vector>(_mm512_maskz_getexp_ps(0xffff, reinterpret_cast<__m512>(value)));
}
inline Lane<double>::Vector Exponent(Lane<double>::Vector value) {
  return reinterpret_cast<Lane<double>::Vector>(_mm512_maskz_getexp_pd(0xff, reinterpret_cast<__m512d>(value)));
}
inline Lane<float>::Vector Scaled(Lane<float>::Vector value, Lane<float>::Vector exponent) {
  return reinterpret_cast<Lane<float>::Vector>(
      _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(value), reinterpret_cast<__m512>(exponent)));
}
inline Lane<double>::Vector Scaled(Lane<double>::Vector value, Lane<double>::Vector exponent) {
  return reinterpret_cast<Lane<double>::Vector>(
      _mm512_maskz_scalef_pd(0xff, reinterpret_cast<__m512d>(value), reinterpret_cast<__m512d>(exponent)));
}

// Of matrices whose largest element is between 1 and 2: what is no longer rotated away, and what a rotation adds to a
// square, that there is no division by zero.
template <typename T>
struct Negligible;
template <>
struct Negligible<float> {
  static constexpr float kElement = 2e-8f, kSquare = 1e-36f;
};
template <>
struct Negligible<double> {
  static constexpr double kElement = 4e-17, kSquare = 1e-290;
};

// Convergence is quadratic: eight rows take six to eight sweeps.
constexpr int kMostSweeps = 30;

// Calls square(p, q) for whole squares of elements along q and single(p, q) for the rest.
template <typename Square, typename Single>
inline void ForElements(int64_t outer, int64_t inner, const Square& square, const Single& single) {
  for (int64_t p = 0; p < outer; ++p) {
    int64_t q = 0;
    for (; q + kSquare <= inner; q += kSquare) square(p, q);
    for (; q < inner; ++q) single(p, q);
  }
}

// How lanes are moved: squares of four neighbours in memory of four matrices, where there are such, along a row or
// along a column; else element by element.
struct Moving {
  Moving(const BatchStrides& strides, int64_t rows, int64_t columns, bool all_lanes)
      : by_row(strides.column == 1 || strides.row != 1),
        outer(by_row ? rows : columns),
        inner(by_row ? columns : rows),
        in_squares(all_lanes && (strides.column == 1 || strides.row == 1)) {}

  template <typename Square, typename Single>
  void ForAll(const Square& square, const Single& single) const {
    const auto one = [&](int64_t p, int64_t q) { by_row ? single(p, q) : single(q, p); };
    const auto four = [&](int64_t p, int64_t q) {
      if (in_squares) {
        by_row ? square(p, q) : square(q, p);
      } else {
        for (int64_t k = 0; k < kSquare; ++k) one(p, q + k);
      }
    };
    ForElements(outer, inner, four, one);
  }

  bool by_row;
  int64_t outer, inner;
  bool in_squares;
};

}  // namespace

template <typename T>
void LoadLanes(T* s, int64_t row, const T* from, const BatchStrides& strides, int64_t rows, int64_t columns,
               int64_t count) {
  constexpr int64_t lanes = kLanes<T>;
  const Moving moving(strides, rows, columns, count == lanes);
  const int64_t step = (moving.by_row ? 1 : row) * lanes;
  moving.ForAll(
      [&](int64_t x, int64_t y) {
        for (int64_t lane = 0; lane < lanes; lane += kSquare) {
          TransposeSquare(from + lane * strides.matrix + x * strides.row + y * strides.column, strides.matrix,
                          s + (x * row + y) * lanes + lane, step);
        }
      },
      [&](int64_t x, int64_t y) {
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const int64_t matrix = lane < count ? lane : count - 1;
          s[(x * row + y) * lanes + lane] = from[matrix * strides.matrix + x * strides.row + y * strides.column];
        }
      });
}

template <typename T>
void StoreLanes(const T* s, int64_t row, T* to, const BatchStrides& strides, int64_t rows, int64_t columns,
                int64_t count) {
  constexpr int64_t lanes = kLanes<T>;
  const Moving moving(strides, rows, columns, count == lanes);
  const int64_t step = (moving.by_row ? 1 : row) * lanes;
  moving.ForAll(
      [&](int64_t x, int64_t y) {
        for (int64_t lane = 0; lane < lanes; lane += kSquare) {
          TransposeSquare(s + (x * row + y) * lanes + lane, step,
                          to + lane * strides.matrix + x * strides.row + y * strides.column, strides.matrix);
        }
      },
      [&](int64_t x, int64_t y) {
        for (int64_t lane = 0; lane < count; ++lane) {
          to[lane * strides.matrix + x * strides.row + y * strides.column] = s[(x * row + y) * lanes + lane];
        }
      });
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

template <typename T>
void FactorLuLanes(T* s, int64_t row, int64_t rows, int64_t columns, int* pivots, int* info) {
  using Vector = typename Lane<T>::Vector;
  using Mask = decltype(Vector{} == Vector{});
  auto* at = reinterpret_cast<Vector*>(s);
  for (int64_t lane = 0; lane < kLanes<T>; ++lane) info[lane] = 0;
  for (int64_t j = 0; j < rows && j < columns; ++j) {
    Vector largest = Size(at[j * row + j]);
    Mask place = Mask{} + static_cast<int>(j);
    for (int64_t i = j + 1; i < rows; ++i) {
      const Vector size = Size(at[i * row + j]);
      const Mask is_larger = ~(size <= largest) & (largest == largest);
      largest = is_larger ? size : largest;
      place = is_larger ? Mask{} + static_cast<int>(i) : place;
    }
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
      pivots[j * kLanes<T> + lane] = static_cast<int>(place[lane]) + 1;
      if (largest[lane] == 0 && info[lane] == 0) info[lane] = static_cast<int>(j + 1);
    }
    for (int64_t i = j + 1; i < rows; ++i) {
      const Mask is_pivot = place == Mask{} + static_cast<int>(i);
      for (int64_t k = 0; k < columns; ++k) {
        const Vector upper = at[j * row + k], lower = at[i * row + k];
        at[j * row + k] = is_pivot ? lower : upper;
        at[i * row + k] = is_pivot ? upper : lower;
      }
    }
    const Vector pivot = at[j * row + j];
    const Vector divisor = pivot == Vector{} ? Vector{} + T(1) : pivot;
    for (int64_t i = j + 1; i < rows; ++i) {
      const Vector quotient = at[i * row + j] / divisor;
      at[i * row + j] = quotient;
      for (int64_t k = j + 1; k < columns; ++k) at[i * row + k] -= quotient * at[j * row + k];
    }
  }
}

template <typename T>
void SolveLanes(const T* a, int64_t a_row, bool is_lower, bool has_unit_diagonal, int64_t n, int64_t sides, T* x,
                int64_t x_row) {
  using Vector = typename Lane<T>::Vector;
  const auto* triangle = reinterpret_cast<const Vector*>(a);
  auto* at = reinterpret_cast<Vector*>(x);
  const int64_t first = is_lower ? 0 : n - 1, step = is_lower ? 1 : -1;
  for (int64_t done = 0; done < n; ++done) {
    const int64_t i = first + done * step;
    for (int64_t side = 0; side < sides; ++side) {
      Vector sum = at[i * x_row + side];
      for (int64_t k = first; k != i; k += step) sum -= triangle[i * a_row + k] * at[k * x_row + side];
      at[i * x_row + side] = has_unit_diagonal ? sum : sum / triangle[i * a_row + i];
    }
  }
}

namespace {

// Both become numbers turned by an angle of this cosine and sine.
template <typename Vector>
inline void Turn(Vector& p, Vector& q, Vector cosine, Vector sine) {
  const Vector turned = cosine * p - sine * q;
  q = sine * p + cosine * q;
  p = turned;
}

template <typename Vector>
inline void ExchangeWhere(decltype(Vector{} < Vector{}) mask, Vector& p, Vector& q) {
  const Vector kept = p;
  p = mask ? q : p;
  q = mask ? kept : q;
}

// One rotation for each pair of columns, which makes the element that they share zero.
template <typename T, typename Vector>
inline void Sweep(Vector* at, int64_t row, int64_t n, Vector* v) {
  for (int64_t p = 0; p + 1 < n; ++p) {
    for (int64_t q = p + 1; q < n; ++q) {
      const Vector shared = at[p * row + q], difference = at[q * row + q] - at[p * row + p], twice = shared + shared;
      const Vector size = Root(difference * difference + twice * twice + Negligible<T>::kSquare);
      const Vector tangent = (difference < Vector{} ? -twice : twice) / (Size(difference) + size);
      const Vector cosine = T(1) / Root(tangent * tangent + T(1)), sine = tangent * cosine;
      at[p * row + p] -= tangent * shared;
      at[q * row + q] += tangent * shared;
      at[p * row + q] = Vector{};
      for (int64_t k = 0; k < p; ++k) Turn(at[k * row + p], at[k * row + q], cosine, sine);
      for (int64_t k = p + 1; k < q; ++k) Turn(at[p * row + k], at[k * row + q], cosine, sine);
      for (int64_t k = q + 1; k < n; ++k) Turn(at[p * row + k], at[q * row + k], cosine, sine);
      for (int64_t k = 0; v != nullptr && k < n; ++k) Turn(v[k * row + p], v[k * row + q], cosine, sine);
    }
  }
}

// Calls one(x, y) for the upper triangle, without its diagonal or with it.
template <typename One>
inline void ForUpper(int64_t n, bool with_diagonal, const One& one) {
  for (int64_t x = 0; x < n; ++x) {
    for (int64_t y = with_diagonal ? x : x + 1; y < n; ++y) one(x, y);
  }
}

}  // namespace

template <typename T>
void EigenLanes(T* s, int64_t row, int64_t n, T* v, T* w, int* info) {
  using Vector = typename Lane<T>::Vector;
  using Mask = decltype(Vector{} < Vector{});
  auto* at = reinterpret_cast<Vector*>(s);
  auto* vectors = reinterpret_cast<Vector*>(v);
  auto* values = reinterpret_cast<Vector*>(w);
  Vector largest{}, zero{};
  ForUpper(n, true, [&](int64_t x, int64_t y) {
    const Vector size = Size(at[x * row + y]);
    largest = size > largest ? size : largest;
    zero += at[x * row + y] * T(0);
  });
  const Mask is_finite = zero == Vector{};
  const Vector exponent = (largest > Vector{}) & is_finite ? Exponent(largest) : Vector{};
  ForUpper(n, true,
           [&](int64_t x, int64_t y) { at[x * row + y] = is_finite ? Scaled(at[x * row + y], -exponent) : Vector{}; });
  for (int64_t x = 0; v != nullptr && x < n; ++x) {
    for (int64_t y = 0; y < n; ++y) vectors[x * row + y] = Vector{} + T(x == y ? 1 : 0);
  }
  Mask is_diagonal{};
  for (int sweep = 0; sweep <= kMostSweeps; ++sweep) {
    Vector left{};
    ForUpper(n, false, [&](int64_t x, int64_t y) {
      const Vector size = Size(at[x * row + y]);
      left = size > left ? size : left;
    });
    is_diagonal = left <= Negligible<T>::kElement;
    bool are_all = true;
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) are_all = are_all && is_diagonal[lane] != 0;
    if (are_all || sweep == kMostSweeps) break;
    Sweep<T>(at, row, n, vectors);
  }
  const Vector nan = Vector{} + T(__builtin_nan(""));
  for (int64_t i = 0; i < n; ++i) values[i] = is_finite ? Scaled(at[i * row + i], exponent) : nan;
  for (int64_t i = 0; i + 1 < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      const Mask is_less = values[j] < values[i];
      ExchangeWhere(is_less, values[i], values[j]);
      for (int64_t k = 0; v != nullptr && k < n; ++k) {
        ExchangeWhere(is_less, vectors[k * row + i], vectors[k * row + j]);
      }
    }
  }
  for (int64_t k = 0; v != nullptr && k < n; ++k) {
    for (int64_t i = 0; i < n; ++i) vectors[k * row + i] = is_finite ? vectors[k * row + i] : nan;
  }
  for (int64_t lane = 0; lane < kLanes<T>; ++lane) info[lane] = is_finite[lane] && is_diagonal[lane] ? 0 : 1;
}

#define HLO_DISPATCH_LANES(T)                                                                      \
  template void LoadLanes(T*, int64_t, const T*, const BatchStrides&, int64_t, int64_t, int64_t);  \
  template void StoreLanes(const T*, int64_t, T*, const BatchStrides&, int64_t, int64_t, int64_t); \
  template void SymmetriseLanes(T*, int64_t, int64_t);                                             \
  template void FactorLanes(T*, int64_t, int64_t, int64_t, int*);                                  \
  template void FactorLuLanes(T*, int64_t, int64_t, int64_t, int*, int*);                          \
  template void SolveLanes(const T*, int64_t, bool, bool, int64_t, int64_t, T*, int64_t);          \
  template void EigenLanes(T*, int64_t, int64_t, T*, T*, int*);
HLO_DISPATCH_LANES(float)
HLO_DISPATCH_LANES(double)

}  // namespace hlo_dispatch::lapack::blocked
