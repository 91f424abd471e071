#include "quantized_matmul/interleaved_source.h"

#include <cstring>

#include "common/element_type.h"

namespace hlo_dispatch::quantized_matmul {

namespace {

// Of two bytes or of four, whatever they are.
template <typename Number>
void Interleave(const void* from, const RowsAndColumns& matrix, int64_t block, void* to) {
  const auto* numbers = static_cast<const Number*>(from);
  auto* next = static_cast<Number*>(to);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t begin = 0; begin < matrix.columns; begin += block) {
      for (int64_t i = begin; i < begin + block / 2; ++i) {
        const Number* first = numbers + row * matrix.row_stride + i * matrix.column_stride;
        *next++ = *first;
        *next++ = first[block / 2 * matrix.column_stride];
      }
    }
  }
}

}  // namespace

InterleavedSource::InterleavedSource(const Problem& problem, const void* buffer)
    : array_(problem.source_array), matrix_(problem.source), buffer_(buffer) {
  const int64_t block = problem.weights.block;
  if (block <= 2) return;
  const int64_t bytes = ElementBytes(array_.type);
  copy_.resize(static_cast<size_t>(matrix_.rows * matrix_.columns * bytes));
  const void* first = array_.Begin(const_cast<void*>(buffer));
  if (bytes == 2) {
    Interleave<uint16_t>(first, matrix_, block, copy_.data());
  } else {
    Interleave<uint32_t>(first, matrix_, block, copy_.data());
  }
  array_ = {array_.role, array_.type, {matrix_.rows, matrix_.columns}, {matrix_.columns, 1}};
  matrix_ = {matrix_.rows, matrix_.columns, matrix_.columns, 1};
  buffer_ = copy_.data();
}

}  // namespace hlo_dispatch::quantized_matmul
