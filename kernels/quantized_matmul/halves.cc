#include "quantized_matmul/halves.h"

#include "common/halves.h"

namespace hlo_dispatch::quantized_matmul {

WidenedMatrix::WidenedMatrix(const StridedArray& array, const RowsAndColumns& matrix, const void* buffer) {
  const void* first = array.Begin(const_cast<void*>(buffer));
  if (array.type == ElementType::kF32 && matrix.is_by_row()) {
    begin_ = static_cast<const float*>(first);
    row_stride_ = matrix.row_stride;
    return;
  }
  copy_.reserve(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      copy_.push_back(WidenedNumber(first, array.type, row * matrix.row_stride + column * matrix.column_stride));
    }
  }
  begin_ = copy_.data();
  row_stride_ = matrix.columns;
}

void StoreRounded(const float* values, const Tile& tile, const StridedArray& array, const RowsAndColumns& matrix,
                  void* buffer) {
  for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
    for (int64_t column = tile.column_begin; column < tile.column_end; ++column) {
      const float value = values[row * matrix.columns + column];
      const int64_t place = row * matrix.row_stride + column * matrix.column_stride;
      StoreNarrowed(value, array.type, buffer, place);
    }
  }
}

}  // namespace hlo_dispatch::quantized_matmul
