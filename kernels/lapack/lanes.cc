// Batched Cholesky of small matrices, one matrix in each lane of a vector.
#include <algorithm>

#include "common/rounding.h"
#include "lapack/blocked.h"
#include "lapack/lanes_avx512.h"
#include "lapack/panels.h"

namespace hlo_dispatch::lapack::blocked {

namespace {

// Groups of matrices that are worth waking a thread for: some microseconds.
constexpr int64_t kElementsPerTask = 1 << 14;

// Strides of the matrices, transposed if the factor is column-major.
BatchStrides StridesOf(const Matrix& matrix, bool by_column) {
  const int64_t stride = matrix.batch() > 1 ? matrix.Offset(1) / matrix.scalar.bytes : 0;
  return by_column ? BatchStrides{stride, matrix.column_stride, matrix.row_stride}
                   : BatchStrides{stride, matrix.row_stride, matrix.column_stride};
}

template <typename T>
void Factor(char uplo, const Matrix& a, const void* source, bool symmetrised, const Matrix& factor, void* destination,
            int* info, const Parallel& parallel) {
  constexpr int64_t lanes = kLanes<T>;
  const int64_t n = factor.rows, count = factor.batch();
  const bool by_column = factor.is_column_major();
  const BatchStrides from = StridesOf(a, by_column), to = StridesOf(factor, by_column);
  // An odd number of cache lines, so that those of a column do not meet in a few sets.
  const int64_t row = n | 1;
  // Transposed, the lower triangle is the upper one.
  const bool is_lower = (uplo == 'L') != by_column;
  const int64_t groups = CeilOfRatio(count, lanes);
  const int64_t least = std::max<int64_t>(1, kElementsPerTask / (n * n * lanes));
  parallel.For(groups, std::max(least, groups / (8 * parallel.threads())), [&](int64_t begin, int64_t end) {
    const Buffer<T> s(n * row * lanes);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * lanes, some = std::min(lanes, count - first);
      LoadLanes(s.data(), row, static_cast<const T*>(source) + first * from.matrix, from, n, some);
      if (symmetrised) SymmetriseLanes(s.data(), row, n);
      int found[lanes];
      FactorLanes(s.data(), n, is_lower ? row : 1, is_lower ? 1 : row, found);
      std::copy(found, found + some, info + first);
      StoreLanes(s.data(), row, static_cast<T*>(destination) + first * to.matrix, to, n, some);
    }
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

}  // namespace

PotrfBatch FindPotrfBatch(const Matrix& a, const Matrix& factor) {
  constexpr int64_t kMaxRows = 96;
  if (factor.batch() < 2 || factor.rows == 0 || factor.rows > kMaxRows) return nullptr;
  if (!IsRegular(a) || !IsRegular(factor)) return nullptr;
  Check(factor.scalar);
  return factor.scalar.bytes == 4 ? Factor<float> : Factor<double>;
}

}  // namespace hlo_dispatch::lapack::blocked
