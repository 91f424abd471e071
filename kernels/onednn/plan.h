// What a call will do, decided from its attributes alone: the same for planning (which only asks) and for
// instantiation (which goes on to build the primitive).
#ifndef HLO_DISPATCH_ONEDNN_PLAN_H_
#define HLO_DISPATCH_ONEDNN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "onednn/library.h"
#include "onednn/memory.h"
#include "onednn/post_ops.h"

namespace hlo_dispatch::onednn {

struct Operand {
  Tensor tensor;
  int index;  // which argument of the primitive it is
};

struct CallPlan {
  OwnedDescriptor descriptor;
  // Set when the weights are used in another layout than the operand's: every call then first copies them into
  // the scratch memory in that layout.
  OwnedDescriptor weights_reorder;
  std::vector<Operand> operands;  // in the custom-call's order
  Tensor destination;
  std::string implementation;

  // The scratch result holds, one after the other: packed weights, the reorder's scratchpad, the primitive's.
  int64_t packed_weights_bytes = 0;
  int64_t reorder_scratch_bytes = 0;
  int64_t primitive_scratch_bytes = 0;
  int64_t ReorderScratchOffset() const;
  int64_t PrimitiveScratchOffset() const;
  int64_t ScratchBytes() const;
};

// In which memory layout a primitive gets its weights (attribute weights_format).
enum class WeightsFormat {
  kPlain,  // as the operand has them
  kAny,    // as oneDNN likes them best; reordered inside every call where that differs
  kBest,   // whichever of the two the kernel family expects to be faster (the default)
};

// The operands of a call and the primitive attributes they lead to, before a primitive is chosen.
struct CallOperands {
  Tensor source;
  Tensor weights;
  Tensor destination;
  bool has_bias = false;
  Tensor bias;
  WeightsFormat weights_format = WeightsFormat::kBest;
  PostOpChain chain;

  // Reads everything but the bias, whose length and place only the kernel knows. With `add_unit_dimension` every
  // tensor gets one more dimension, of size one, before its last.
  static CallOperands Read(const Attributes& attributes, bool add_unit_dimension = false);
  // If the call has a bias: `length` values along `axis` of a tensor of `rank` dimensions.
  void ReadBias(const Attributes& attributes, int64_t length, int rank, int axis);
  OwnedMemoryDescriptor DescribeWeights() const;
};

// Throws unless the attributes have the meaning that this code gives them; every planner's first step.
void CheckAbi(const Attributes& attributes);

// Completes a plan once the kernel has created its primitive descriptor for these operands.
CallPlan MakePlan(const CallOperands& operands, OwnedDescriptor descriptor);

// One kernel family: reads the attributes, chooses the implementation. Defined in convolution.cc, matmul.cc.
using Planner = CallPlan (*)(const Attributes&);
CallPlan PlanConvolution(const Attributes& attributes);
CallPlan PlanMatmul(const Attributes& attributes);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_PLAN_H_
