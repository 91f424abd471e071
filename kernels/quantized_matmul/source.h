// The source of a quantized matmul as the arithmetic reads it, in one execution: rows of bf16, or of f32.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_SOURCE_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_SOURCE_H_

#include <cstdint>
#include <optional>

#include "common/rows_and_columns.h"
#include "common/strided_array.h"
#include "quantized_matmul/halves.h"

namespace hlo_dispatch::quantized_matmul {

class Source {
 public:
  Source(const StridedArray& array, const RowsAndColumns& matrix, bool is_bf16, const void* buffer) {
    if (is_bf16) {
      Set(half_.emplace(array, matrix, buffer), 2);
    } else {
      Set(wide_.emplace(array, matrix, buffer), 4);
    }
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  const void* At(int64_t row, int64_t column) const { return begin_ + (row * row_stride_ + column) * bytes_; }
  int64_t row_stride() const { return row_stride_; }
  // The source in f32, unless it is read in halves.
  const std::optional<WidenedMatrix>& wide() const { return wide_; }

 private:
  template <typename Matrix>
  void Set(const Matrix& matrix, int64_t bytes) {
    begin_ = reinterpret_cast<const char*>(matrix.begin());
    row_stride_ = matrix.row_stride();
    bytes_ = bytes;
  }

  std::optional<WidenedMatrix> wide_;
  std::optional<HalfMatrix> half_;
  const char* begin_;
  int64_t row_stride_, bytes_;
};

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_SOURCE_H_
