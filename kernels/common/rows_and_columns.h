// An array as one matrix: all its dimensions but the last are rows.
#ifndef HLO_DISPATCH_COMMON_ROWS_AND_COLUMNS_H_
#define HLO_DISPATCH_COMMON_ROWS_AND_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "common/strided_array.h"

namespace hlo_dispatch {

struct RowsAndColumns {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t row_stride = 0;  // 0: one row is repeated
  int64_t column_stride = 0;

  // Throws Failure(kUnsupported) where the rows do not lie at equal distances. Dimensions of size 1 are repeated where
  // `dims` has more of them, all rows or none.
  static RowsAndColumns Of(const StridedArray& array, const std::vector<int64_t>& dims);

  // Whether the elements of a row are contiguous.
  bool is_by_row() const { return column_stride == 1 || columns == 1; }
  bool is_by_column() const { return row_stride == 1 || rows == 1; }
  // Which of the two a result is written by: the longer lines where it is both.
  bool goes_by_row() const { return is_by_row() && !(columns == 1 && is_by_column()); }
  const float* At(const float* origin, int64_t row, int64_t column) const {
    return origin + row * row_stride + column * column_stride;
  }
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_ROWS_AND_COLUMNS_H_
