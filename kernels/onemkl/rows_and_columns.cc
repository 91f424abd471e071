#include "onemkl/rows_and_columns.h"

#include <algorithm>
#include <limits>
#include <string>

#include "common/failure.h"
#include "onemkl/gemm_functions.h"

namespace hlo_dispatch::onemkl {

namespace {

constexpr int64_t kMost = std::numeric_limits<int>::max();  // gemm counts with 32 bits

[[noreturn]] void Unsupported(const std::string& message) { throw Failure(FailureKind::kUnsupported, message); }

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
    if (matrix.rows > kMost) Unsupported(array.role + ": expected at most " + std::to_string(kMost) + " rows");
  }
  if (is_repeated && is_whole) {
    Unsupported(array.role + ": expected a value for each row, or one for all of them, not for some");
  }
  return matrix;
}

GemmOperand GemmOperand::Of(const RowsAndColumns& matrix, bool by_row, const std::string& role) {
  // As it is if possible.
  const bool as_it_is = by_row ? matrix.is_by_row() : matrix.is_by_column();
  const bool reads_rows = as_it_is == by_row;
  if (reads_rows ? !matrix.is_by_row() : !matrix.is_by_column()) {
    Unsupported(role + ": expected rows or columns whose elements lie side by side, which gemm reads");
  }
  // The distance between lines matters where there are several.
  const int64_t lines = reads_rows ? matrix.rows : matrix.columns;
  const int64_t length = reads_rows ? matrix.columns : matrix.rows;
  const int64_t distance = reads_rows ? matrix.row_stride : matrix.column_stride;
  const int64_t leading = lines == 1 ? length : std::max(distance, length);
  if (leading > kMost) Unsupported(role + ": expected strides of at most " + std::to_string(kMost));
  return {as_it_is ? kAsItIs : kTransposed, static_cast<int>(leading)};
}

}  // namespace hlo_dispatch::onemkl
