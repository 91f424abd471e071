// hlo_dispatch.onednn.binary
//
//   dst = post_ops(src), of which the first has an operand, which repeats where it is smaller:
//   dst[n, c, x] = post_ops( src[n, c, x] * operand[n, c] )
//
// for glue ops of a call group: gates, scales, sums. Operands: src, one per binary post-op. Results: dst, scratch.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr Roles kRoles{"src", nullptr, "dst", /*has_space=*/false, /*may_be_prepacked=*/false, /*own_post_ops=*/1};

using CreateBinary = Status(PrimitiveDescriptor**, Engine*, Algorithm, const MemoryDescriptor*, const MemoryDescriptor*,
                            const MemoryDescriptor*, const PrimitiveAttributes*);

// Whether every channel of one image is multiplied by its own value: squeeze-and-excite's gate.
bool IsGate(const CallOperands& operands, const BinaryPostOp& first) {
  const Tensor &source = operands.source, &gate = first.operand;
  if (first.algorithm != kBinaryMul || source.dims.size() != 4 || source.dims[0] != 1) return false;
  const std::vector<int64_t> dims{1, source.dims[1], 1, 1};
  return gate.dims == dims && gate.type == source.type && gate.elements == 0 && (dims[1] == 1 || gate.strides[1] == 1);
}

// A gate as a depthwise convolution of 1x1, for which oneDNN has faster code than for a binary operation that repeats.
// Each element is read before the same one is written there, too. Nothing where oneDNN has no such code, or would want
// the gate in another layout.
std::optional<CallPlan> PlanDepthwise(CallOperands& operands, const BinaryPostOp& first) {
  const Library& library = Library::Get();
  const std::vector<int64_t> ones{1, 1}, zeros{0, 0};
  operands.weights = first.operand;
  operands.weights.dims = {first.operand.dims[1], 1, 1, 1, 1};
  operands.weights.strides = {1, 1, 1, 1, 1};
  operands.weights_format = WeightsFormat::kAny;
  PrimitiveDescriptor* created = nullptr;
  const Status status = library.functions().convolution_forward_primitive_desc_create(
      &created, library.engine(), kForwardInference, kConvolutionDirect, operands.source.Describe().get(),
      operands.DescribeWeights().get(), nullptr, operands.destination.Describe().get(), ones.data(), zeros.data(),
      zeros.data(), zeros.data(), MakePrimitiveAttributes(operands.chain).get());
  if (status != kSuccess) return std::nullopt;
  OwnedDescriptor descriptor(created);
  if (ImplementationName(descriptor.get()).rfind("brdgmm_dw", 0) != 0) return std::nullopt;
  const MemoryDescriptor* preferred =
      library.functions().primitive_desc_query_md(descriptor.get(), kQueryArgument, kArgumentWeights);
  // Blocked by channels without padding: the gate's layout already.
  const bool is_dense =
      static_cast<int64_t>(library.functions().memory_desc_get_size(preferred)) == operands.weights.Bytes();
  if (!is_dense) return std::nullopt;
  CallPlan plan = MakePlan(operands, std::move(descriptor));
  plan.operands[kWeightsOperand].reorder = {};
  if (plan.Reorders()) return std::nullopt;
  plan.reorder_scratch_bytes = 0;
  return plan;
}

CallPlan Plan(const Attributes& attributes) {
  const Library& library = Library::Get();
  CallOperands operands = CallOperands::Read(attributes, kRoles);
  if (operands.source.dims.size() < 2) Invalid("src: expected at least 2 dimensions");
  if (operands.destination.dims != operands.source.dims) Invalid("dst: expected the dimensions of src");
  BinaryPostOp first = ReadBinaryPostOp(attributes, "post_op_0", operands.destination.dims);
  if (IsGate(operands, first)) {
    if (std::optional<CallPlan> plan = PlanDepthwise(operands, first)) return std::move(*plan);
  }
  operands.weights = std::move(first.operand);
  ArgumentIndices indices;
  indices.weights = kArgumentBinaryOperand;
  return MakePlan(
      operands,
      Choose("choosing a binary operation", library.Function<CreateBinary>("binary_primitive_desc_create"),
             library.engine(), first.algorithm, operands.source.Describe().get(), operands.weights.Describe().get(),
             operands.destination.Describe().get(), MakePrimitiveAttributes(operands.chain).get()),
      indices);
}

const Family<PlannedCall<Plan>, kOneDnn> family("binary", {{}, "", kOneDnnCallGroup, /*may_write_over_source=*/true});

}  // namespace

}  // namespace hlo_dispatch::onednn
