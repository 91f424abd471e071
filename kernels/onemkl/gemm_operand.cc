#include "onemkl/gemm_operand.h"

#include <algorithm>
#include <limits>
#include <string>

#include "common/failure.h"
#include "onemkl/gemm_functions.h"

namespace hlo_dispatch::onemkl {

namespace {

constexpr int64_t kMaxInteger = std::numeric_limits<int>::max();  // gemm counts with 32 bits

}  // namespace

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
  if (leading > kMaxInteger) Unsupported(role + ": expected strides of at most " + std::to_string(kMaxInteger));
  return {as_it_is ? kAsItIs : kTransposed, static_cast<int>(leading)};
}

}  // namespace hlo_dispatch::onemkl
