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
  copy_.resize(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    WidenNumbers(first, array.type, row * matrix.row_stride, matrix.column_stride, matrix.columns,
                 copy_.data() + row * matrix.columns);
  }
  begin_ = copy_.data();
  row_stride_ = matrix.columns;
}

HalfMatrix::HalfMatrix(const StridedArray& array, const RowsAndColumns& matrix, const void* buffer) {
  const auto* first = static_cast<const uint16_t*>(array.Begin(const_cast<void*>(buffer)));
  begin_ = first;
  row_stride_ = matrix.row_stride;
  if (matrix.is_by_row()) return;
  copy_.reserve(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      copy_.push_back(first[row * matrix.row_stride + column * matrix.column_stride]);
    }
  }
  begin_ = copy_.data();
  row_stride_ = matrix.columns;
}

void StoreRounded(const float* values, const Tile& tile, const StridedArray& array, const RowsAndColumns& matrix,
                  void* buffer) {
  for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
    NarrowNumbers(values + row * matrix.columns + tile.column_begin, tile.column_end - tile.column_begin, array.type,
                  buffer, row * matrix.row_stride + tile.column_begin * matrix.column_stride, matrix.column_stride);
  }
}

}  // namespace hlo_dispatch::quantized_matmul
