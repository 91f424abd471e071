// Blocked Cholesky and LU factorizations, triangular solve and triangular matrix product of our own, on XLA's thread
// pool: for processors with AVX-512 that neither oneMKL nor the OpenBLAS inside SciPy uses it on. Real, column-major
// matrices.
#ifndef HLO_DISPATCH_LAPACK_BLOCKED_H_
#define HLO_DISPATCH_LAPACK_BLOCKED_H_

#include <cstdint>

#include "common/parallel.h"
#include "lapack/matrix.h"

namespace hlo_dispatch::lapack::blocked {

// LAPACK's potrf. The other triangle is not touched.
using Potrf = void (*)(char uplo, int64_t n, void* a, int64_t leading, int* info, const Parallel& parallel);

// BLAS's trsm with alpha 1, from `b` into `x` (m x n, any strides, the same or apart).
using Trsm = void (*)(char side, char uplo, bool transposed, bool unit, int64_t m, int64_t n, const void* a,
                      int64_t leading, const void* b, int64_t b_row_stride, int64_t b_column_stride, void* x,
                      int64_t x_row_stride, int64_t x_column_stride, const Parallel& parallel);

// c (m x n, column-major, leading dimension `leading`) = a (m x k) · b (k x n), both with any strides. Zeros of a panel
// at either end of the sum are skipped: of triangular matrices, half or two thirds of the work.
using Product = void (*)(int64_t m, int64_t n, int64_t k, const void* a, int64_t a_row_stride, int64_t a_column_stride,
                         const void* b, int64_t b_row_stride, int64_t b_column_stride, void* c, int64_t leading,
                         const Parallel& parallel);

// potrf for every matrix of a batch, copied (and symmetrised, if so) while it is packed.
using PotrfBatch = void (*)(char uplo, const Matrix& a, const void* source, bool symmetrised, const Matrix& factor,
                            void* destination, int* info, const Parallel& parallel);
// nullptr where the matrices are large, one alone, or lie at uneven distances; throws likewise.
PotrfBatch FindPotrfBatch(const Matrix& a, const Matrix& factor);

// getrf for every tiny matrix of a batch.
using GetrfBatch = void (*)(const Matrix& a, const void* source, const Matrix& lu, void* destination, int* pivots,
                            int* info, const Parallel& parallel);
// nullptr where the matrices are larger or few, or lie at uneven distances; throws likewise.
GetrfBatch FindGetrfBatch(const Matrix& a, const Matrix& lu);

// Which triangle of a matrix is solved for, and from which side, of matrices as they are described.
struct Triangle {
  char side, uplo;
  bool transposed, has_unit_diagonal;
};

// trsm for every tiny matrix of a batch.
using TrsmBatch = void (*)(const Triangle& triangle, const Matrix& a, const void* factor, const Matrix& b,
                           const void* source, const Matrix& x, void* destination, const Parallel& parallel);
// Likewise.
TrsmBatch FindTrsmBatch(const Matrix& a, const Matrix& b, const Matrix& x);

// How a symmetric matrix is read, and what is wanted of it.
struct Symmetric {
  char uplo;
  bool symmetrised, has_vectors;
};

// syevd for every tiny matrix of a batch; without eigenvectors v is working memory.
using SyevdBatch = void (*)(const Symmetric& read, const Matrix& a, const void* source, const Matrix& v, void* vectors,
                            void* values, int* info, const Parallel& parallel);
// Likewise.
SyevdBatch FindSyevdBatch(const Matrix& a, const Matrix& v);

// LAPACK's getrf.
using Getrf = void (*)(int64_t m, int64_t n, void* a, int64_t leading, int* pivots, int* info,
                       const Parallel& parallel);
// For matrices that fit into the first-level cache; nullptr where there are more rows. Throws likewise.
Getrf FindSmallGetrf(const Scalar& scalar, int64_t rows);
// For any matrix; throws likewise.
Getrf FindLargeGetrf(const Scalar& scalar);

// For the element type; throw Failure(kUnsupported) for a complex one, or where the processor lacks AVX-512.
Potrf FindPotrf(const Scalar& scalar);
Trsm FindTrsm(const Scalar& scalar);
Product FindProduct(const Scalar& scalar);

}  // namespace hlo_dispatch::lapack::blocked

#endif  // HLO_DISPATCH_LAPACK_BLOCKED_H_
