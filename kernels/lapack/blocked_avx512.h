// The arithmetic of blocked.cc, in AVX-512. That file is compiled for processors this one may not be, so it includes
// nothing but this header and shares no inline function with the rest.
#ifndef HLO_DISPATCH_LAPACK_BLOCKED_AVX512_H_
#define HLO_DISPATCH_LAPACK_BLOCKED_AVX512_H_

#include <cstdint>

namespace hlo_dispatch::lapack::blocked {

// Columns of a register tile: with three vectors of rows, 24 of the 32 registers hold sums.
inline constexpr int64_t kColumns = 8;
// Rows of a panel and of a register tile. A panel holds that many rows of a matrix, packed column by column.
template <typename T>
inline constexpr int64_t kRows = 3 * 64 / static_cast<int64_t>(sizeof(T));

// panel = the matrix m, whose element (r, c) is at m[r * row_stride + c * column_stride]; the panel's other rows and
// columns up to `padded` become 0.
template <typename T>
void Pack(T* panel, const T* m, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
          int64_t padded);

// The inverse: elements (r, c) with r - c >= lowest.
template <typename T>
void Unpack(const T* panel, T* m, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
            int64_t lowest);

// c (kRows x kColumns, dense) -= a · gᵀ, where a is `depth` columns of a panel and g's element (column, k) is at
// g[k * g_stride + column].
template <typename T>
void Subtract(T* c, const T* a, int64_t depth, const T* g, int64_t g_stride);

// The same on a tile of a column-major matrix: elements (r, q) with r < rows, q < columns, and r - q >= lowest or
// r - q <= highest.
template <typename T>
void SubtractFrom(T* c, int64_t leading, const T* a, int64_t depth, const T* g, int64_t g_stride, int64_t rows,
                  int64_t columns, int64_t lowest, int64_t highest);

// c (+)= a · gᵀ on the first rows and columns of a tile of a column-major matrix; `fresh` overwrites c.
template <typename T>
void AddTo(T* c, int64_t leading, const T* a, int64_t depth, const T* g, int64_t g_stride, int64_t rows,
           int64_t columns, bool fresh);

// The columns of a panel that are not 0, and whether all its elements are finite: 0 times others is not 0.
struct Extent {
  int64_t first = 0;
  int64_t last = 0;  // at most `first` where everything is 0
  bool is_finite = true;
};
template <typename T>
Extent ExtentOf(const T* panel, int64_t columns);

// Solves x · triangleᵀ = c in place for kRows x kColumns of a panel; triangle is lower, by rows, and has the
// diagonal's inverse on its diagonal.
template <typename T>
void SolveTriangle(T* c, const T* triangle);

// The Cholesky factor of the kColumns x kColumns matrix at rows `first` of c, written over its lower triangle and, as
// SolveTriangle() wants it, to `triangle`. Returns how many columns are good: fewer than `size` where one has no
// positive diagonal.
template <typename T>
int64_t FactorTriangle(T* c, int64_t first, int64_t size, T* triangle);

}  // namespace hlo_dispatch::lapack::blocked

#endif  // HLO_DISPATCH_LAPACK_BLOCKED_AVX512_H_
