// What follows a product, applied to a part of the result while it is in the cache: bias and post-ops.
#ifndef HLO_DISPATCH_COMMON_EPILOGUE_H_
#define HLO_DISPATCH_COMMON_EPILOGUE_H_

#include <cstdint>
#include <vector>

#include "common/activations.h"
#include "common/attributes.h"
#include "common/provider.h"
#include "common/rows_and_columns.h"
#include "common/strided_array.h"

namespace hlo_dispatch {

// A part of the result, by rows and columns: [begin, end).
struct Tile {
  int64_t row_begin, row_end, column_begin, column_end;
};

// Whose it is, in messages, and whether operands of half precision are widened before it is given them.
struct EpilogueOwner {
  const char* name;
  bool widens;
};

class Epilogue {
 public:
  // Reads bias_type and the post-ops of a call whose result is `destination`. Throws Failure(kUnsupported) for operands
  // that are not f32, where they are not widened, and for functions that the provider lacks.
  Epilogue(const Provider& provider, const Attributes& attributes, const StridedArray& destination,
           const EpilogueOwner& owner = {"oneMKL's gemm", /*widens=*/false});

  // Operands of the call after src and weights, in order.
  const std::vector<StridedArray>& operands() const { return operands_; }
  bool is_empty() const { return steps_.empty(); }

  // Args:
  //   values: the result's first element, which lies as `result` says.
  //   operands: their first elements.
  void Apply(float* values, const RowsAndColumns& result, const Tile& tile,
             const std::vector<const float*>& operands) const;

 private:
  // y = combine(y, other), for `count` values; `step` is 0 where other is one number.
  using Combine = void (*)(float* y, const float* other, int64_t step, int64_t count);

  struct Step {
    Activation activation;  // of one variable; or else
    Combine combine = nullptr;
    size_t operand = 0;  // which one is the other
  };

  static Combine FindCombine(const std::string& algorithm, const std::string& role);
  void AddOperand(StridedArray operand, const std::vector<int64_t>& dims, Combine combine, const EpilogueOwner& owner);

  std::vector<StridedArray> operands_;
  std::vector<RowsAndColumns> matrices_;  // of the operands
  std::vector<Step> steps_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_EPILOGUE_H_
