// The rows of arrays that are sorted, as attributes describe them.
#ifndef HLO_DISPATCH_SORTING_ROWS_H_
#define HLO_DISPATCH_SORTING_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/attributes.h"

namespace hlo_dispatch::sorting {

// Throws unless the attributes describe an array of these dimensions, in rows behind one another.
void CheckRows(const Attributes& attributes, const std::string& role, const std::vector<int64_t>& dims);
// Rows of an operand, at least one, and columns that s32 can number. Throws where it has others.
struct Rows {
  std::vector<int64_t> dims;
  int64_t rows, columns;
};
Rows ReadRows(const Attributes& attributes, const std::string& role);
// How many rows of so many columns are handed to a thread together.
int64_t RowsOfPiece(int64_t columns);

}  // namespace hlo_dispatch::sorting

#endif  // HLO_DISPATCH_SORTING_ROWS_H_
