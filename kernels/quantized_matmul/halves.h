// Conversion of matrices to f32, and of results from f32.
#ifndef HLO_DISPATCH_QUANTIZED_MATMUL_HALVES_H_
#define HLO_DISPATCH_QUANTIZED_MATMUL_HALVES_H_

#include <cstdint>
#include <vector>

#include "common/epilogue.h"
#include "common/rows_and_columns.h"
#include "common/strided_array.h"

namespace hlo_dispatch::quantized_matmul {

// A row-major matrix in f32.
class WidenedMatrix {
 public:
  WidenedMatrix(const StridedArray& array, const RowsAndColumns& matrix, const void* buffer);
  const float* begin() const { return begin_; }
  int64_t row_stride() const { return row_stride_; }  // from row to row

 private:
  std::vector<float> copy_;
  const float* begin_;
  int64_t row_stride_;
};

// A row-major matrix in bf16, of an array of that type.
class HalfMatrix {
 public:
  HalfMatrix(const StridedArray& array, const RowsAndColumns& matrix, const void* buffer);
  const void* begin() const { return begin_; }
  int64_t row_stride() const { return row_stride_; }

 private:
  std::vector<uint16_t> copy_;
  const void* begin_;
  int64_t row_stride_;
};

// Writes a part of a result of which there are all values, row by row.
void StoreRounded(const float* values, const Tile& tile, const StridedArray& array, const RowsAndColumns& matrix,
                  void* buffer);

}  // namespace hlo_dispatch::quantized_matmul

#endif  // HLO_DISPATCH_QUANTIZED_MATMUL_HALVES_H_
