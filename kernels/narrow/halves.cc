#include "narrow/halves.h"

// The vectors of every processor, of which only the conversions of single numbers are used.
namespace hlo_dispatch::attention {
namespace {
constexpr int kVectorBytes = 16;
}  // namespace
}  // namespace hlo_dispatch::attention

#include "attention/vectors.h"

namespace hlo_dispatch::narrow {

namespace {

using attention::AnyFloat;
using attention::AnyHalf;

float Wide(const void* from, ElementType type, int64_t place) {
  if (type == ElementType::kF32) return static_cast<const AnyFloat*>(from)[place];
  const uint16_t half = static_cast<const AnyHalf*>(from)[place];
  return type == ElementType::kBF16 ? attention::FromBf16(half) : attention::FromF16(half);
}

}  // namespace

Values::Values(const StridedArray& array, const void* buffer) {
  const void* first = array.Begin(const_cast<void*>(buffer));
  if (array.type == ElementType::kF32) {
    begin_ = static_cast<const float*>(first);
    return;
  }
  copy_.resize(static_cast<size_t>(array.Bytes() / ElementBytes(array.type)));
  for (size_t i = 0; i < copy_.size(); ++i) copy_[i] = Wide(first, array.type, static_cast<int64_t>(i));
  begin_ = copy_.data();
}

Widened::Widened(const StridedArray& array, const onemkl::RowsAndColumns& matrix, const void* buffer) {
  const void* first = array.Begin(const_cast<void*>(buffer));
  if (array.type == ElementType::kF32 && matrix.is_by_row()) {
    begin_ = static_cast<const float*>(first);
    distance_ = matrix.row_stride;
    return;
  }
  copy_.reserve(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      copy_.push_back(Wide(first, array.type, row * matrix.row_stride + column * matrix.column_stride));
    }
  }
  begin_ = copy_.data();
  distance_ = matrix.columns;
}

void Narrow(const float* values, const onemkl::Part& part, const StridedArray& array,
            const onemkl::RowsAndColumns& matrix, void* buffer) {
  for (int64_t row = part.row_begin; row < part.row_end; ++row) {
    for (int64_t column = part.column_begin; column < part.column_end; ++column) {
      const float value = values[row * matrix.columns + column];
      const int64_t place = row * matrix.row_stride + column * matrix.column_stride;
      if (array.type == ElementType::kF32) {
        static_cast<AnyFloat*>(buffer)[place] = value;
      } else {
        static_cast<AnyHalf*>(buffer)[place] =
            array.type == ElementType::kBF16 ? attention::ToBf16(value) : attention::ToF16(value);
      }
    }
  }
}

}  // namespace hlo_dispatch::narrow
