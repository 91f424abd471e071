#include "sorting/rows.h"

#include <algorithm>
#include <limits>

#include "common/checked.h"
#include "common/failure.h"

namespace hlo_dispatch::sorting {

namespace {

// So many elements take some tens of microseconds.
constexpr int64_t kGrain = 1 << 13;

}  // namespace

void CheckRows(const Attributes& attributes, const std::string& role, const std::vector<int64_t>& dims) {
  if (attributes.Integers(role + "_dims") != dims) Invalid(role + ": expected the dimensions of its operand");
  const std::vector<int64_t> strides = attributes.Integers(role + "_strides");
  if (strides.size() != dims.size()) Invalid(role + ": expected a stride for each dimension");
  if (!IsRowMajor(dims, strides)) Unsupported(role + ": expected rows behind one another");
}

Rows ReadRows(const Attributes& attributes, const std::string& role) {
  Rows found;
  found.dims = attributes.Integers(role + "_dims");
  if (found.dims.empty()) Invalid(role + ": expected at least one dimension");
  const std::string attribute = "attribute '" + role + "_dims'";
  for (const int64_t size : found.dims) {
    if (size < 1) Invalid(attribute + ": expected elements, got a dimension of " + std::to_string(size));
  }
  found.columns = found.dims.back();
  found.rows = Elements(found.dims, attribute) / found.columns;
  if (found.columns > std::numeric_limits<int32_t>::max()) Unsupported(role + ": expected rows that s32 can number");
  CheckRows(attributes, role, found.dims);
  return found;
}

int64_t RowsOfPiece(int64_t columns) { return std::max<int64_t>(1, kGrain / columns); }

}  // namespace hlo_dispatch::sorting
