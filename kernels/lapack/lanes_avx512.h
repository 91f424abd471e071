// Batched kernels on small matrices, interleaved: each lane of a vector works on one matrix. As blocked_avx512.cc,
// lanes_avx512.cc is compiled for processors this one may not be, and includes nothing but this.
#ifndef HLO_DISPATCH_LAPACK_LANES_AVX512_H_
#define HLO_DISPATCH_LAPACK_LANES_AVX512_H_

#include <cstdint>

namespace hlo_dispatch::lapack::blocked {

template <typename T>
inline constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(T));

// Strides of a batch of matrices: element (x, y) of matrix b is at b * matrix + x * row + y * column.
struct BatchStrides {
  int64_t matrix, row, column;
};

// s[(x * row + y) * kLanes + lane] = element (x, y) of the lane's matrix. Lanes from `count` on repeat the last one.
template <typename T>
void LoadLanes(T* s, int64_t row, const T* from, const BatchStrides& strides, int64_t rows, int64_t columns,
               int64_t count);

// The inverse, for the first `count` lanes.
template <typename T>
void StoreLanes(const T* s, int64_t row, T* to, const BatchStrides& strides, int64_t rows, int64_t columns,
                int64_t count);

// s = (s + transpose(s)) / 2.
template <typename T>
void SymmetriseLanes(T* s, int64_t row, int64_t n);

// The Cholesky factor over one triangle: element (i, k), k <= i, is at s[(i * row + k * column) * kLanes]. info[lane]
// becomes the number, from 1, of the first column without a positive diagonal, or 0.
template <typename T>
void FactorLanes(T* s, int64_t n, int64_t row, int64_t column, int* info);

// LAPACK's getrf of rows x columns, `row` columns apart: the pivot of column j, from 1, in pivots[j * kLanes + lane],
// and info as getrf's. What is not a number is the largest, that it may spread as it does where one divides by it.
template <typename T>
void FactorLuLanes(T* s, int64_t row, int64_t rows, int64_t columns, int* pivots, int* info);

// x (n x sides, `x_row` sides apart) = inverse of the triangle of a (n x n, `a_row` apart) times x.
template <typename T>
void SolveLanes(const T* a, int64_t a_row, bool is_lower, bool has_unit_diagonal, int64_t n, int64_t sides, T* x,
                int64_t x_row);

// Eigenvalues of symmetric matrices (n x n, `row` apart, of which the upper triangle is read and both are destroyed),
// ascending, w[i * kLanes + lane]; the columns of v, likewise `row` apart, become their eigenvectors, if it is not
// null. By cyclic rotations of pairs of columns (Jacobi), of matrices scaled by a power of two. Where a matrix is not
// finite everything is NaN, and info 1.
template <typename T>
void EigenLanes(T* s, int64_t row, int64_t n, T* v, T* w, int* info);

}  // namespace hlo_dispatch::lapack::blocked

#endif  // HLO_DISPATCH_LAPACK_LANES_AVX512_H_
