// Batched Cholesky of small matrices, LU, triangular solves and eigenvalues of tiny ones: one matrix in each lane of a
// vector.
#include <algorithm>

#include "common/rounding.h"
#include "lapack/blocked.h"
#include "lapack/lanes_avx512.h"
#include "lapack/panels.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

// Groups of matrices that are worth waking a thread for: some microseconds.
constexpr int64_t kElementsPerTask = 1 << 14;
// Rows and columns of a tiny matrix: to factor larger ones alone, in vectors of rows, fills these as well.
constexpr int64_t kMostInLanes = 8;

// Strides of the matrices, transposed where asked.
BatchStrides StridesOf(const Matrix& matrix, bool is_transposed) {
  const int64_t stride = matrix.batch() > 1 ? matrix.Offset(1) / matrix.scalar.bytes : 0;
  return is_transposed ? BatchStrides{stride, matrix.column_stride, matrix.row_stride}
                       : BatchStrides{stride, matrix.row_stride, matrix.column_stride};
}

// An odd number of cache lines, so that those of a column do not meet in a few sets.
int64_t RowOf(int64_t columns) { return columns | 1; }

// Calls work(first, count, memory) for each `kLanes` matrices of a batch, with memory for `elements` of each matrix.
template <typename T, typename Work>
void ForGroups(int64_t count, int64_t elements, const Parallel& parallel, const Work& work) {
  constexpr int64_t lanes = kLanes<T>;
  const int64_t groups = CeilOfRatio(count, lanes);
  const int64_t least = std::max<int64_t>(1, kElementsPerTask / (elements * lanes));
  parallel.For(groups, std::max(least, groups / (8 * parallel.threads())), [&](int64_t begin, int64_t end) {
    const Buffer<T> memory(elements * lanes);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * lanes;
      work(first, std::min(lanes, count - first), memory.data());
    }
  });
}

template <typename T>
void Factor(char uplo, const Matrix& a, const void* source, bool symmetrised, const Matrix& factor, void* destination,
            int* info, const Parallel& parallel) {
  const int64_t n = factor.rows, row = RowOf(n);
  const bool by_column = factor.is_column_major();
  const BatchStrides from = StridesOf(a, by_column), to = StridesOf(factor, by_column);
  // Transposed, the lower triangle is the upper one.
  const bool is_lower = (uplo == 'L') != by_column;
  ForGroups<T>(factor.batch(), n * row, parallel, [&](int64_t first, int64_t some, T* s) {
    LoadLanes(s, row, static_cast<const T*>(source) + first * from.matrix, from, n, n, some);
    if (symmetrised) SymmetriseLanes(s, row, n);
    int found[kLanes<T>];
    FactorLanes(s, n, is_lower ? row : 1, is_lower ? 1 : row, found);
    std::copy(found, found + some, info + first);
    StoreLanes(s, row, static_cast<T*>(destination) + first * to.matrix, to, n, n, some);
  });
}

template <typename T>
void FactorLu(const Matrix& a, const void* source, const Matrix& lu, void* destination, int* pivots, int* info,
              const Parallel& parallel) {
  const int64_t rows = lu.rows, columns = lu.columns, row = RowOf(columns), shorter = std::min(rows, columns);
  const BatchStrides from = StridesOf(a, false), to = StridesOf(lu, false);
  ForGroups<T>(lu.batch(), rows * row, parallel, [&](int64_t first, int64_t some, T* s) {
    LoadLanes(s, row, static_cast<const T*>(source) + first * from.matrix, from, rows, columns, some);
    int found[kLanes<T>], exchanged[kMostInLanes * kLanes<T>];
    FactorLuLanes(s, row, rows, columns, exchanged, found);
    std::copy(found, found + some, info + first);
    for (int64_t lane = 0; lane < some; ++lane) {
      for (int64_t j = 0; j < shorter; ++j) pivots[(first + lane) * shorter + j] = exchanged[j * kLanes<T> + lane];
    }
    StoreLanes(s, row, static_cast<T*>(destination) + first * to.matrix, to, rows, columns, some);
  });
}

template <typename T>
void Solve(const Triangle& triangle, const Matrix& a, const void* factor, const Matrix& b, const void* source,
           const Matrix& x, void* destination, const Parallel& parallel) {
  // x a = b is a' x' = b'.
  const bool is_right = triangle.side == 'R', is_transposed = triangle.transposed != is_right;
  const bool is_lower = (triangle.uplo == 'L') != is_transposed;
  const int64_t n = a.rows, sides = is_right ? x.rows : x.columns, row = RowOf(n), x_row = RowOf(sides);
  const BatchStrides of_a = StridesOf(a, is_transposed), from = StridesOf(b, is_right), to = StridesOf(x, is_right);
  ForGroups<T>(x.batch(), n * (row + x_row), parallel, [&](int64_t first, int64_t some, T* s) {
    T* solved = s + n * row * kLanes<T>;
    LoadLanes(s, row, static_cast<const T*>(factor) + first * of_a.matrix, of_a, n, n, some);
    LoadLanes(solved, x_row, static_cast<const T*>(source) + first * from.matrix, from, n, sides, some);
    SolveLanes(s, row, is_lower, triangle.has_unit_diagonal, n, sides, solved, x_row);
    StoreLanes(solved, x_row, static_cast<T*>(destination) + first * to.matrix, to, n, sides, some);
  });
}

template <typename T>
void Diagonalise(const Symmetric& read, const Matrix& a, const void* source, const Matrix& v, void* vectors,
                 void* values, int* info, const Parallel& parallel) {
  const int64_t n = v.rows, row = RowOf(n);
  // Of the elements in memory the upper triangle is read.
  const BatchStrides from = StridesOf(a, read.uplo == 'L'), to = StridesOf(v, false);
  ForGroups<T>(v.batch(), n * (2 * row + 1), parallel, [&](int64_t first, int64_t some, T* s) {
    T *found = s + n * row * kLanes<T>, *w = found + n * row * kLanes<T>;
    LoadLanes(s, row, static_cast<const T*>(source) + first * from.matrix, from, n, n, some);
    if (read.symmetrised) SymmetriseLanes(s, row, n);
    int infos[kLanes<T>];
    EigenLanes(s, row, n, read.has_vectors ? found : nullptr, w, infos);
    std::copy(infos, infos + some, info + first);
    StoreLanes(w, n, static_cast<T*>(values) + first * n, BatchStrides{n, n, 1}, 1, n, some);
    StoreLanes(read.has_vectors ? found : s, row, static_cast<T*>(vectors) + first * to.matrix, to, n, n, some);
  });
}

// Whether matrices follow one another at one distance: every dimension of the batch steps over the whole of the next.
bool IsRegular(const Matrix& matrix) {
  int64_t next = 0;  // what the dimension in front has to step by
  for (size_t i = matrix.batch_dims.size(); i-- > 0;) {
    if (matrix.batch_dims[i] == 1) continue;
    if (next != 0 && matrix.batch_strides[i] != next) return false;
    next = matrix.batch_dims[i] * matrix.batch_strides[i];
  }
  return true;
}

// Whether there are enough matrices, each of few enough elements for the first-level cache to hold a group of them.
bool FitLanes(const Matrix& matrix) {
  const int64_t lanes = matrix.scalar.bytes == 4 ? kLanes<float> : kLanes<double>;
  return matrix.batch() >= lanes && matrix.rows > 0 && matrix.columns > 0 && matrix.rows <= kMostInLanes &&
         matrix.columns <= kMostInLanes && IsRegular(matrix);
}

}  // namespace

PotrfBatch FindPotrfBatch(const Matrix& a, const Matrix& factor) {
  constexpr int64_t kMaxRows = 96;
  if (factor.batch() < 2 || factor.rows == 0 || factor.rows > kMaxRows) return nullptr;
  if (!IsRegular(a) || !IsRegular(factor)) return nullptr;
  Check(factor.scalar);
  return factor.scalar.bytes == 4 ? Factor<float> : Factor<double>;
}

GetrfBatch FindGetrfBatch(const Matrix& a, const Matrix& lu) {
  Check(lu.scalar);
  if (!FitLanes(lu) || !IsRegular(a)) return nullptr;
  return lu.scalar.bytes == 4 ? FactorLu<float> : FactorLu<double>;
}

TrsmBatch FindTrsmBatch(const Matrix& a, const Matrix& b, const Matrix& x) {
  Check(x.scalar);
  if (!FitLanes(a) || !FitLanes(x) || !IsRegular(b)) return nullptr;
  return x.scalar.bytes == 4 ? Solve<float> : Solve<double>;
}

SyevdBatch FindSyevdBatch(const Matrix& a, const Matrix& v) {
  Check(v.scalar);
  if (!FitLanes(v) || !IsRegular(a)) return nullptr;
  return v.scalar.bytes == 4 ? Diagonalise<float> : Diagonalise<double>;
}

}  // namespace hlo_dispatch::lapack::blocked
