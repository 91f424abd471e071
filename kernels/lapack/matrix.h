// Matrices as the attributes describe them: batch dimensions, rows and columns, each with a stride in elements. One
// of rows and columns is contiguous, so a matrix is in LAPACK's column-major order, or its transpose is.
#ifndef HLO_DISPATCH_LAPACK_MATRIX_H_
#define HLO_DISPATCH_LAPACK_MATRIX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/parallel.h"
#include "common/routine.h"
#include "common/scalar.h"

namespace hlo_dispatch::lapack {

struct Matrix {
  std::string role;
  Scalar scalar;
  std::vector<int64_t> batch_dims;
  std::vector<int64_t> batch_strides;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t column_stride;

  int64_t batch() const;
  // Where a batch's element (0, 0) is, in bytes.
  int64_t Offset(int64_t batch_index) const;
  // Its address in the whole batch's buffer.
  const void* At(const void* buffer, int64_t batch_index) const {
    return static_cast<const char*>(buffer) + Offset(batch_index);
  }
  void* At(void* buffer, int64_t batch_index) const { return static_cast<char*>(buffer) + Offset(batch_index); }
  // Whether columns are contiguous, as LAPACK has them; otherwise rows are.
  bool is_column_major() const { return row_stride == 1 || rows <= 1; }
  // Distance between columns (of the transpose, where rows are contiguous); what LAPACK calls LDA.
  int64_t leading() const;
  bool SameOrder(const Matrix& other) const { return is_column_major() == other.is_column_major(); }
  BufferSpec spec() const;
};

// Reads <role>_dims (batch..., rows, columns) and <role>_strides. Throws Failure(kInvalid) where they make no such
// matrix or not a dense array of them, Failure(kUnsupported) where LAPACK's 32-bit integers cannot count it.
Matrix MatrixFromAttributes(const Attributes& attributes, const std::string& role);

// A dense vector per batch: info, pivots, eigenvalues.
BufferSpec VectorSpec(const std::string& role, xla::ffi::DataType type, int64_t bytes_per_element, int64_t count);

enum class Copying {
  kPlain,
  kConjugated,
  kSymmetrised,  // (a + transpose(a)) / 2, as XLA computes it; square and real
};

// Copies one matrix of a batch into another of the same size, whatever the order of either, in blocks that stay in
// the cache; large ones on several threads.
void Copy(const Matrix& from, const void* source, const Matrix& to, void* destination, Copying copying,
          const Parallel& parallel);

// Conjugates one matrix of a batch in place; does nothing to a real one.
void Conjugate(const Matrix& matrix, void* address);

// One matrix of a batch as LAPACK wants it, dense and column-major: the result's own buffer where that is so, else
// working memory that Finish() copies into the result.
class ColumnMajor {
 public:
  ColumnMajor(const Matrix& matrix, void* address);

  const Matrix& matrix() const { return work_; }
  void* data() const { return data_; }
  int leading() const { return static_cast<int>(work_.leading()); }
  void Finish(const Parallel& parallel) const;

 private:
  Matrix result_;
  Matrix work_;
  void* address_;
  void* data_;
  std::vector<char> memory_;
};

}  // namespace hlo_dispatch::lapack

#endif  // HLO_DISPATCH_LAPACK_MATRIX_H_
