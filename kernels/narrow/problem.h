// One product of few rows as a call's attributes describe it.
#ifndef HLO_DISPATCH_NARROW_PROBLEM_H_
#define HLO_DISPATCH_NARROW_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "common/attributes.h"
#include "common/routine.h"
#include "common/strided_array.h"
#include "lapack/provider.h"
#include "onemkl/epilogue.h"
#include "onemkl/rows_and_columns.h"

namespace hlo_dispatch::narrow {

// More rows are refused: arithmetic takes longer than the weights do then, and other products are better at that.
inline constexpr int64_t kMostRows = 32;

enum class WeightsType { kS8, kBF16, kF32 };

// A matrix, (depth, columns).
struct Weights {
  WeightsType type;
  int64_t depth;
  int64_t columns;
  bool has_columns_together;  // else its rows lie side by side
  int64_t distance;           // between what does not
  int64_t offset;             // of the first one in its buffer
  int64_t elements;           // of the whole buffer
};

int64_t WeightBytes(WeightsType type);

struct Problem {
  // Throws Failure(kUnsupported) for what this kernel has nothing for.
  Problem(const lapack::Provider& provider, const Attributes& attributes);

  StridedArray source_array, destination_array;
  onemkl::RowsAndColumns source, destination;
  Weights weights;
  onemkl::Epilogue epilogue;

  std::vector<BufferSpec> operands() const;
  BufferSpec result() const;
  // Whether sums can be made where the result is to lie.
  bool sums_in_place() const;
};

}  // namespace hlo_dispatch::narrow

#endif  // HLO_DISPATCH_NARROW_PROBLEM_H_
