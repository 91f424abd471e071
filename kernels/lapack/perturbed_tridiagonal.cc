// Solves of tridiagonal systems that may be singular, as JAX's eigh_tridiagonal needs for inverse iteration: LAPACK's
// lagtf and lagts, for several right-hand sides and complex numbers. Gaussian elimination exchanges neighbouring rows;
// pivots that are so small that the solution would overflow are moved by multiples of the roundings of the largest one.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "lapack/jax_only_calls.h"
#include "lapack/matrix.h"
#include "lapack/options.h"

namespace hlo_dispatch::lapack {

namespace {

template <typename T>
class Solver {
 public:
  using Real = decltype(std::abs(T()));

  Solver(int64_t n, int64_t columns) : n_(n), columns_(columns), pivots_(n), first_(n), second_(n), row_(columns) {}

  // `x` has the right-hand sides, column by column, and gets the solution.
  void Solve(const T* lower, const T* diagonal, const T* upper, T* x) {
    if (n_ == 0 || columns_ == 0) return;
    const Real largest = Eliminate(lower, diagonal, upper, x);
    const Real roundings = std::numeric_limits<Real>::epsilon() * largest;
    for (int64_t i = n_; i-- > 0;) {
      for (int64_t c = 0; c < columns_; ++c) {
        const T* column = x + c * n_;
        T value = column[i];
        if (i + 1 < n_) value -= first_[i] * column[i + 1];
        if (i + 2 < n_) value -= second_[i] * column[i + 2];
        row_[c] = value;
      }
      const T inverse = T(1) / SafePivot(pivots_[i], roundings);
      for (int64_t c = 0; c < columns_; ++c) x[c * n_ + i] = row_[c] * inverse;
    }
  }

 private:
  // Makes the upper triangle (pivots, and two diagonals above them) and applies the same steps to x. Returns the
  // triangle's largest absolute value.
  Real Eliminate(const T* lower, const T* diagonal, const T* upper, T* x) {
    const auto above = [&](int64_t i) { return i + 1 < n_ ? upper[i] : T(0); };
    std::fill(second_.begin(), second_.end(), T(0));
    pivots_[0] = diagonal[0];
    first_[0] = above(0);
    Real scale = std::abs(pivots_[0]) + std::abs(first_[0]);
    Real largest = std::max(std::abs(pivots_[0]), std::abs(first_[0]));
    for (int64_t i = 0; i + 1 < n_; ++i) {
      const int64_t next = i + 1;
      const Real next_scale = std::abs(lower[next]) + std::abs(diagonal[next]) + std::abs(above(next));
      pivots_[next] = diagonal[next];
      first_[next] = above(next);
      const Real here = pivots_[i] == T(0) ? Real(0) : std::abs(pivots_[i]) / scale;
      if (lower[next] == T(0)) {
        scale = next_scale;
      } else if (std::abs(lower[next]) / next_scale <= here) {
        const T factor = lower[next] / pivots_[i];
        pivots_[next] -= factor * first_[i];
        for (int64_t c = 0; c < columns_; ++c) x[c * n_ + next] -= factor * x[c * n_ + i];
        scale = next_scale;
      } else {
        const T factor = pivots_[i] / lower[next], before = first_[i];
        pivots_[i] = lower[next];
        first_[i] = diagonal[next];
        second_[i] = above(next);
        pivots_[next] = before - factor * diagonal[next];
        first_[next] = -factor * above(next);
        for (int64_t c = 0; c < columns_; ++c) {
          T *one = x + c * n_ + i, *other = one + 1;
          const T exchanged = *other;
          *other = *one - factor * exchanged;
          *one = exchanged;
        }
        scale = std::abs(pivots_[next]) + std::abs(first_[next]);
      }
      largest = std::max({largest, std::abs(pivots_[i]), std::abs(first_[i]), std::abs(second_[i])});
    }
    return std::max(largest, std::abs(pivots_[n_ - 1]));
  }

  // A pivot that the row of right-hand sides can be divided by without an overflow; where both are tiny, both are
  // scaled.
  T SafePivot(T pivot, Real roundings) {
    constexpr Real kTiny = std::numeric_limits<Real>::min(), kHuge = 1 / kTiny;
    Real size = std::abs(pivot), factor = 0;
    for (const T& value : row_) factor = std::max(factor, std::abs(value));
    Real step = std::copysign(std::max(roundings, kTiny), std::real(pivot));
    while (size < 1) {
      const bool is_tiny = size < kTiny;
      if (is_tiny ? size == 0 || factor * kTiny > size : factor > size * kHuge) {
        pivot += step;
        step *= 2;
        size = std::abs(pivot);
        continue;
      }
      if (is_tiny) {
        pivot *= kHuge;
        for (T& value : row_) value *= kHuge;
      }
      break;
    }
    return pivot;
  }

  int64_t n_, columns_;
  std::vector<T> pivots_, first_, second_, row_;
};

template <typename T>
void SolveBatch(const Matrix& b, const JaxCall& call) {
  const int64_t square = b.rows * b.columns;
  const auto operand = [&](size_t number) { return static_cast<const T*>(call.buffers.operands[number]); };
  call.parallel.For(b.batch(), 1, [&](int64_t begin, int64_t end) {
    Solver<T> solver(b.rows, b.columns);
    for (int64_t i = begin; i < end; ++i) {
      T* x = static_cast<T*>(call.buffers.results[0]) + i * square;
      const T* given = operand(3) + i * square;
      if (given != x) std::copy(given, given + square, x);
      const int64_t row = i * b.rows;
      solver.Solve(operand(0) + row, operand(1) + row, operand(2) + row, x);
    }
  });
}

}  // namespace

void PerturbedTridiagonalSolve(const JaxCall& call) {
  const Matrix b = MatrixFromAttributes(call.attributes, "b");
  const int64_t rows = Product(b.batch(), b.rows, "b");
  for (const char* role : {"dl", "d", "du"}) {
    const std::string what = std::string(role) + "_dims";
    if (Elements(call.attributes.Integers(what), what) != rows) {
      Invalid(std::string(role) + ": expected as many elements as b has rows");
    }
  }
  CheckSame(b, MatrixFromAttributes(call.attributes, "x"));
  switch (b.scalar.type) {
    case xla::ffi::DataType::F32:
      return SolveBatch<float>(b, call);
    case xla::ffi::DataType::F64:
      return SolveBatch<double>(b, call);
    case xla::ffi::DataType::C64:
      return SolveBatch<std::complex<float>>(b, call);
    default:
      return SolveBatch<std::complex<double>>(b, call);
  }
}

}  // namespace hlo_dispatch::lapack
