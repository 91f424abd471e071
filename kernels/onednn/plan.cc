#include "onednn/plan.h"

#include <utility>

#include "common/failure.h"

namespace hlo_dispatch::onednn {

namespace {

// The version of the attributes' meaning; raised whenever an old custom-call would be misread.
constexpr int64_t kAbi = 1;

// XLA aligns buffers to 64 bytes and a cache line has as many: parts of the scratch memory keep to that.
constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t ScratchpadBytes(const Functions& onednn, const OwnedDescriptor& descriptor) {
  const MemoryDescriptor* scratchpad = onednn.primitive_desc_query_md(descriptor.get(), kQueryScratchpad, 0);
  return scratchpad == nullptr ? 0 : static_cast<int64_t>(onednn.memory_desc_get_size(scratchpad));
}

WeightsFormat ReadWeightsFormat(const Attributes& attributes) {
  const std::string format = attributes.Has("weights_format") ? attributes.Text("weights_format") : "best";
  if (format == "plain") return WeightsFormat::kPlain;
  if (format == "any") return WeightsFormat::kAny;
  if (format == "best") return WeightsFormat::kBest;
  throw Failure(FailureKind::kInvalid,
                "attribute 'weights_format': expected plain, any or best, got '" + format + "'");
}

void PlanWeightsReorder(const Library& library, const Tensor& weights, CallPlan& plan) {
  const Functions& onednn = library.functions();
  const MemoryDescriptor* packed = onednn.primitive_desc_query_md(plan.descriptor.get(), kQueryWeights, 0);
  OwnedMemoryDescriptor given = weights.Describe();
  if (onednn.memory_desc_equal(given.get(), packed)) return;
  OwnedAttributes attributes = MakePrimitiveAttributes({});
  PrimitiveDescriptor* reorder = nullptr;
  library.Check(onednn.reorder_primitive_desc_create(&reorder, given.get(), library.engine(), packed,
                                                     library.engine(), attributes.get()),
                "weights: choosing a reorder into the preferred layout");
  plan.weights_reorder.reset(reorder);
  plan.packed_weights_bytes = static_cast<int64_t>(onednn.memory_desc_get_size(packed));
  plan.reorder_scratch_bytes = ScratchpadBytes(onednn, plan.weights_reorder);
}

}  // namespace

void CheckAbi(const Attributes& attributes) {
  const int64_t abi = attributes.Integer("abi");
  if (abi != kAbi) {
    throw Failure(FailureKind::kUnavailable, "this executable was compiled for kernel ABI " + std::to_string(abi) +
                                                 ", the installed hlo-dispatch has " + std::to_string(kAbi) +
                                                 "; compile it again");
  }
}

int64_t CallPlan::ReorderScratchOffset() const { return Aligned(packed_weights_bytes); }

int64_t CallPlan::PrimitiveScratchOffset() const { return ReorderScratchOffset() + Aligned(reorder_scratch_bytes); }

int64_t CallPlan::ScratchBytes() const { return PrimitiveScratchOffset() + primitive_scratch_bytes; }

CallOperands CallOperands::Read(const Attributes& attributes, bool add_unit_dimension) {
  CallOperands operands{ReadTensor(attributes, "src"), ReadTensor(attributes, "weights"),
                        ReadTensor(attributes, "dst"), false, {}, ReadWeightsFormat(attributes), {}};
  operands.chain = ReadPostOps(attributes, operands.destination.dims.size(), add_unit_dimension);
  if (add_unit_dimension) {
    for (Tensor* tensor : {&operands.source, &operands.weights, &operands.destination}) {
      *tensor = tensor->WithUnitDimension();
    }
  }
  return operands;
}

void CallOperands::ReadBias(const Attributes& attributes, int64_t length, int rank, int axis) {
  has_bias = attributes.Has("bias_type");
  if (has_bias) bias = BiasTensor(attributes, length, rank, axis);
}

OwnedMemoryDescriptor CallOperands::DescribeWeights() const {
  return weights_format == WeightsFormat::kAny ? weights.DescribeAnyFormat() : weights.Describe();
}

CallPlan MakePlan(const CallOperands& operands, OwnedDescriptor descriptor) {
  const Library& library = Library::Get();
  CallPlan plan;
  plan.descriptor = std::move(descriptor);
  const char* implementation = nullptr;
  library.Check(library.functions().primitive_desc_query(plan.descriptor.get(), kQueryImplementation, 0,
                                                         &implementation),
                "asking which implementation was chosen");
  plan.implementation = implementation;
  plan.primitive_scratch_bytes = ScratchpadBytes(library.functions(), plan.descriptor);
  if (operands.weights_format == WeightsFormat::kAny) PlanWeightsReorder(library, operands.weights, plan);

  plan.operands.push_back({operands.source, kArgumentSource});
  plan.operands.push_back({operands.weights, kArgumentWeights});
  if (operands.has_bias) plan.operands.push_back({operands.bias, kArgumentBias});
  for (const auto& [index, tensor] : operands.chain.operands) plan.operands.push_back({tensor, index});
  plan.destination = operands.destination;
  return plan;
}

}  // namespace hlo_dispatch::onednn
