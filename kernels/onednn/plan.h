// Call plan: everything about a call that follows from its attributes, used by planning (support queries) and by
// instantiation (which builds the primitive).
#ifndef HLO_DISPATCH_ONEDNN_PLAN_H_
#define HLO_DISPATCH_ONEDNN_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/buffer_spec.h"
#include "onednn/blocked_copy.h"
#include "onednn/half_conversion.h"
#include "onednn/library.h"
#include "onednn/memory.h"
#include "onednn/memory_layout.h"
#include "onednn/post_ops.h"
#include "onednn/prepacked_layout.h"

namespace hlo_dispatch::onednn {

// Layout reorder of an operand or the result: a per-call copy between the buffer's layout and the primitive's, in
// reorder scratch.
struct LayoutReorder {
  OwnedDescriptor descriptor;       // null: the primitive works on the buffer as it is
  std::optional<BlockedCopy> copy;  // our own copy instead of the reorder, where supported
  int64_t offset = 0;               // of the copy in reorder scratch
  int64_t scratch_offset = 0;       // of the reorder's scratchpad, likewise
};

struct Operand {
  Tensor tensor;
  int index;  // which argument of the primitive it is
  // Set where the primitive has reversed spatial dimensions and no own reorder reverses them: every call copies an
  // operand reversed to this offset of the scratch memory, and a result from it.
  std::optional<int64_t> reversed_offset;
  LayoutReorder reorder;
  // Not 0: the buffer has so many bytes, of the tensor as the primitive has it (prepacked_layout.h).
  int64_t packed_bytes = 0;
  // Set where the buffer is in f16 and the tensor in f32: every call converts between it and this offset of reorder
  // scratch.
  std::optional<HalfConversion> conversion = {};
  int64_t converted_offset = 0;

  bool is_prepacked() const { return packed_bytes > 0; }
  int64_t BufferBytes() const { return is_prepacked() ? packed_bytes : tensor.buffer().BufferBytes(); }
  BufferSpec spec() const;  // of the buffer; prepacked weights are bytes
  // Bytes in front of the first element in that buffer.
  int64_t BytesBefore() const {
    return is_prepacked() ? 0 : tensor.buffer().offset * ElementBytes(tensor.buffer().type);
  }
  void* Begin(void* buffer) const { return static_cast<char*>(buffer) + BytesBefore(); }
};

// Where the weights are among the operands.
inline constexpr size_t kWeightsOperand = 1;

struct CallPlan {
  OwnedDescriptor descriptor;
  std::vector<Operand> operands;  // in the custom-call's order
  Operand destination;
  std::string implementation;
  size_t spatial_dimensions = 0;  // how many of the last dimensions are space, for operands to be reversed
  int64_t primitive_scratch_offset = 0;
  int64_t scratch_bytes = 0;
  int64_t reorder_scratch_bytes = 0;  // of reorder scratch (reorder_scratch.h)
  double multiply_adds = 0;
  bool sums_in_place = false;     // whether it has an in-place sum post-op
  bool may_be_prepacked = false;  // whether the attributes ask for prepacked weights
  PrepackedLayout prepacked;      // their layout then

  // Whether every call copies an operand or the result between layouts.
  bool Reorders() const;
  // Whether all such copies are own ones.
  bool Copies() const;
  // Lower bound of a call's time on one thread.
  double MinSeconds() const;
};

// In which memory layout a primitive gets its weights (attribute weights_format).
enum class WeightsFormat {
  kPlain,      // as the operand has them
  kAny,        // in oneDNN's preferred layout; reordered in every call where that differs
  kBest,       // whichever of the two the kernel family expects to be faster (the default)
  kPrepacked,  // in oneDNN's preferred layout, prepacked by onednn.pack, unless that is plain
};

// What a kernel family calls its operands and its result: the prefixes of their attributes.
struct Roles {
  const char* source = "src";
  const char* weights = "weights";  // null: there are none
  const char* destination = "dst";
  bool has_space = true;         // whether all but the first two dimensions are spatial
  bool may_be_prepacked = true;  // whether onednn.pack can prepack the weights, if there are any
  int own_post_ops = 0;          // how many of the first post-ops the primitive computes itself
};

// Which arguments of the primitive they are.
struct ArgumentIndices {
  ArgumentIndex source = kArgumentSource;
  ArgumentIndex weights = kArgumentWeights;
  ArgumentIndex destination = kArgumentDestination;
};

// The operands of a call and the primitive attributes they lead to, before a primitive is chosen.
struct CallOperands {
  Tensor source;
  Tensor weights;  // empty where the roles have none
  Tensor destination;
  bool has_bias = false;
  Tensor bias;
  WeightsFormat weights_format = WeightsFormat::kBest;
  bool has_space = true;  // whether all but the first two dimensions are spatial
  // The primitive has the weights' (or their gradient's) spatial dimensions reversed (weights_reversed).
  bool weights_reversed = false;
  PostOpChain chain;

  bool has_weights() const { return !weights.dims.empty(); }

  // Reads everything but the bias, whose length and place only the kernel knows. With `add_unit_dimension` every
  // tensor gets one more dimension, of size one, before its last. Where there are weights, tensors of f16 are widened.
  static CallOperands Read(const Attributes& attributes, const Roles& roles = {}, bool add_unit_dimension = false);
  // If the call has a bias: `length` values along `axis` of a tensor of `rank` dimensions.
  void ReadBias(const Attributes& attributes, int64_t length, int rank, int axis);
  OwnedMemoryDescriptor DescribeWeights() const;
  // Whether reversing the weights' spatial dimensions moves an element.
  bool ReversesWeights() const;
};

// Completes a plan once the kernel has created its primitive descriptor for these operands. Source, weights and
// result are reordered wherever the primitive was created for another layout than the buffers have.
CallPlan MakePlan(const CallOperands& operands, OwnedDescriptor descriptor, const ArgumentIndices& indices = {});

// Plans the conversion of an operand, or the result, of which the buffer is in f16 and the tensor in f32.
void PlanConversion(MemoryLayout& memory, Operand& operand);

// Plan of the reorder that prepacks the weights of a call, planned for prepacked weights.
CallPlan PlanPrepack(const CallPlan& call);

// The plan, if it is not one of integers that would not be summed exactly: without instructions that add up four
// products of eight bits in 32 bits oneDNN adds up two in 16 first, of halved weights. What it does then says so by
// what it is named after. Throws Failure(kUnsupported) otherwise.
CallPlan WithExactSums(CallPlan plan);

// Size of a primitive's scratchpad.
int64_t ScratchpadBytes(const OwnedDescriptor& descriptor);

// oneDNN's own name for what a primitive descriptor would run, such as brgconv:avx512_core.
std::string ImplementationName(const PrimitiveDescriptor* descriptor);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_PLAN_H_
