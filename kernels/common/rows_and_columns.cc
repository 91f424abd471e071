#include "common/rows_and_columns.h"

#include <limits>
#include <string>

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

constexpr int64_t kMaxInteger = std::numeric_limits<int>::max();  // gemm counts with 32 bits

}  // namespace

RowsAndColumns RowsAndColumns::Of(const StridedArray& array, const std::vector<int64_t>& dims) {
  const size_t last = dims.size() - 1;
  RowsAndColumns matrix;
  matrix.columns = dims[last];
  matrix.column_stride = array.dims[last] == dims[last] ? array.strides[last] : 0;
  bool is_repeated = false;
  bool is_whole = false;
  for (size_t i = last; i-- > 0;) {
    if (dims[i] == 1) continue;
    if (array.dims[i] == 1) {
      is_repeated = true;
    } else if (!is_whole) {
      matrix.row_stride = array.strides[i];
      is_whole = true;
    } else if (array.strides[i] / matrix.row_stride != matrix.rows || array.strides[i] % matrix.row_stride != 0) {
      Unsupported(array.role + ": expected rows at equal distances, which gemm reads as one matrix");
    }
    matrix.rows *= dims[i];
    if (matrix.rows > kMaxInteger)
      Unsupported(array.role + ": expected at most " + std::to_string(kMaxInteger) + " rows");
  }
  if (is_repeated && is_whole) {
    Unsupported(array.role + ": expected a value for each row, or one for all of them, not for some");
  }
  return matrix;
}

}  // namespace hlo_dispatch
