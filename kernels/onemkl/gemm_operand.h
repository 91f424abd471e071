// GEMM operand: a matrix with transposition and leading dimension.
#ifndef HLO_DISPATCH_ONEMKL_GEMM_OPERAND_H_
#define HLO_DISPATCH_ONEMKL_GEMM_OPERAND_H_

#include <string>

#include "common/rows_and_columns.h"

namespace hlo_dispatch::onemkl {

struct GemmOperand {
  int transpose = 0;
  int leading = 1;

  // For matrices that the call has by row, or by column. Throws Failure(kUnsupported) where gemm cannot read it.
  static GemmOperand Of(const RowsAndColumns& matrix, bool by_row, const std::string& role);
};

}  // namespace hlo_dispatch::onemkl

#endif  // HLO_DISPATCH_ONEMKL_GEMM_OPERAND_H_
