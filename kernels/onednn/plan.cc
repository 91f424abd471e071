#include "onednn/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/failure.h"
#include "common/machine_speed.h"
#include "common/processor.h"
#include "onednn/memory_layout.h"

namespace hlo_dispatch::onednn {

namespace {

WeightsFormat ReadWeightsFormat(const Attributes& attributes, const Roles& roles) {
  const std::string format = attributes.Has("weights_format") ? attributes.Text("weights_format") : "best";
  const bool may_be_prepacked = roles.weights != nullptr && roles.may_be_prepacked;
  if (format == "plain") return WeightsFormat::kPlain;
  if (format == "any") return WeightsFormat::kAny;
  if (format == "best") return WeightsFormat::kBest;
  if (format == "packed" && may_be_prepacked) return WeightsFormat::kPrepacked;
  Invalid(std::string("attribute 'weights_format': expected plain, any") +
          (may_be_prepacked ? ", best or packed" : " or best") + ", got '" + format + "'");
}

bool ReadReversed(const Attributes& attributes, const Roles& roles) {
  if (!attributes.Has("weights_reversed") || attributes.Integer("weights_reversed") == 0) return false;
  if (roles.has_space && roles.weights != nullptr) return true;
  Invalid("attribute 'weights_reversed': expected weights with spatial dimensions");
}

// Plans the copy of `operand` between the buffer's layout and the primitive's, where they differ. Our own copy reads
// the last `reversed` dimensions reversed.
void PlanReorder(const Library& library, const OwnedDescriptor& descriptor, bool is_result, MemoryLayout& memory,
                 Operand& operand, size_t reversed = 0) {
  const Functions& onednn = library.functions();
  const MemoryDescriptor* preferred = onednn.primitive_desc_query_md(descriptor.get(), kQueryArgument, operand.index);
  OwnedMemoryDescriptor plain = operand.tensor.Describe();
  if (onednn.memory_desc_equal(plain.get(), preferred)) return;
  OwnedAttributes attributes = MakePrimitiveAttributes({});
  LayoutReorder& reorder = operand.reorder;
  reorder.descriptor =
      Choose(operand.tensor.role + ": choosing a reorder between its layout and the preferred one",
             onednn.reorder_primitive_desc_create, is_result ? preferred : plain.get(), library.engine(),
             is_result ? plain.get() : preferred, library.engine(), attributes.get());
  // Of integers there are sums beside the copy, which are the library's affair.
  if (!is_result && !IsInteger(operand.tensor.type)) {
    if (auto layout = BlockedLayout::Read(preferred, operand.tensor.type)) {
      reorder.copy = BlockedCopy::Plan(operand.tensor, *layout, reversed);
    }
  }
  reorder.offset = memory.Reserve(static_cast<int64_t>(onednn.memory_desc_get_size(preferred)));
  reorder.scratch_offset = memory.Reserve(ScratchpadBytes(reorder.descriptor));
}

bool AreWeights(const Tensor& tensor) { return tensor.role.find("weights") != std::string::npos; }

// The dimensions, slowest first, of an operand of a convolution or a pooling as XLA mostly stores it: channels last,
// weights by space, inputs, groups, outputs.
std::vector<size_t> ChannelsLast(const Tensor& tensor, size_t spatial) {
  const size_t rank = tensor.dims.size(), others = rank - std::min(rank, spatial);
  const size_t slower = others == 0 || AreWeights(tensor) ? 0 : 1;
  std::vector<size_t> order = RowMajorOrder(slower);
  for (size_t i = others; i < rank; ++i) order.push_back(i);
  if (AreWeights(tensor) && others > 0) order.push_back(others - 1);
  for (size_t i = slower; order.size() < rank; ++i) order.push_back(i);
  return order;
}

// Source and result in one order, the weights in their own.
void SetCanonicalStrides(CallOperands& operands) {
  const size_t spatial = operands.source.dims.size() - 2;
  const std::array<Tensor*, 3> tensors = {&operands.source, &operands.weights, &operands.destination};
  for (const bool of_weights : {false, true}) {
    bool channels_last = true;
    for (const Tensor* tensor : tensors) {
      if (AreWeights(*tensor) == of_weights) channels_last &= tensor->LiesIn(ChannelsLast(*tensor, spatial));
    }
    for (Tensor* tensor : tensors) {
      if (AreWeights(*tensor) != of_weights) continue;
      const std::vector<size_t> order =
          channels_last ? ChannelsLast(*tensor, spatial) : RowMajorOrder(tensor->dims.size());
      *tensor = tensor->WithCanonicalStrides(order);
    }
  }
}

// oneDNN's products of f32 by tiles round results to bf16 with an instruction of AVX-512 BF16 whether the processor has
// it or not (3.13: a forward convolution ends the process).
void CheckRounding(const CallPlan& plan) {
  const bool rounds = plan.operands[0].tensor.type == ElementType::kF32 &&
                      plan.destination.tensor.type == ElementType::kBF16 && plan.implementation.rfind("brg", 0) == 0 &&
                      plan.implementation.find("avx512") != std::string::npos;
  if (rounds && !HasAvx512Bf16()) {
    Unsupported(plan.implementation + ": results of f32 cannot be rounded to bf16 on this processor");
  }
}

double Product(const std::vector<int64_t>& sizes) {
  double product = 1;
  for (int64_t size : sizes) product *= static_cast<double>(size);
  return product;
}

// Of a convolution each position of the smaller array meets all of the window's weights, forwards or backwards.
double MultiplyAdds(const CallOperands& operands, bool is_gradient) {
  if (!operands.has_weights()) return 0;
  if (!operands.has_space) return Product(operands.destination.dims) * static_cast<double>(operands.source.dims.back());
  const Tensor& window = is_gradient ? operands.destination : operands.weights;
  const Tensor& other = is_gradient ? operands.weights : operands.destination;
  const auto positions = [](const Tensor& tensor) { return Product(tensor.dims) / tensor.dims[1]; };
  return std::min(positions(operands.source), positions(other)) * Product(window.dims);
}

}  // namespace

void PlanConversion(MemoryLayout& memory, Operand& operand) {
  if (operand.tensor.stored == nullptr || operand.is_prepacked()) return;
  operand.conversion = HalfConversion(*operand.tensor.stored);
  operand.converted_offset = memory.Reserve(operand.tensor.Bytes());
}

BufferSpec Operand::spec() const {
  return {tensor.role, is_prepacked() ? xla::ffi::U8 : DataTypeOf(tensor.buffer().type), BufferBytes()};
}

bool CallPlan::Reorders() const {
  bool any = destination.reorder.descriptor != nullptr;
  for (const Operand& operand : operands) any = any || operand.reorder.descriptor != nullptr;
  return any;
}

bool CallPlan::Copies() const {
  bool ours = destination.reorder.descriptor == nullptr;
  for (const Operand& operand : operands) {
    ours = ours && (operand.reorder.descriptor == nullptr || operand.reorder.copy.has_value());
  }
  return ours;
}

double CallPlan::MinSeconds() const {
  int64_t bytes = destination.BufferBytes();
  for (const Operand& operand : operands) {
    bytes += operand.is_prepacked() ? operand.packed_bytes : operand.tensor.Bytes();
  }
  return MachineSpeed::Get().Seconds(multiply_adds, static_cast<double>(bytes));
}

CallOperands CallOperands::Read(const Attributes& attributes, const Roles& roles, bool add_unit_dimension) {
  CallOperands operands{ReadTensor(attributes, roles.source),
                        roles.weights == nullptr ? Tensor{} : ReadTensor(attributes, roles.weights),
                        ReadTensor(attributes, roles.destination, Accepted::kFloatsAndSums),
                        /*has_bias=*/false,
                        /*bias=*/{},
                        ReadWeightsFormat(attributes, roles),
                        roles.has_space,
                        ReadReversed(attributes, roles),
                        /*chain=*/{}};
  if (operands.destination.elements > 0) {
    Invalid(std::string(roles.destination) + ": expected a whole buffer, got a part of one");
  }
  const bool widens = operands.has_weights();
  operands.chain = ReadPostOps(attributes, operands.destination.dims, add_unit_dimension, roles.own_post_ops, widens);
  if (widens) {
    for (Tensor* tensor : {&operands.source, &operands.weights, &operands.destination}) *tensor = tensor->Widened();
  }
  if (add_unit_dimension) {
    for (Tensor* tensor : {&operands.source, &operands.weights, &operands.destination}) {
      if (!tensor->dims.empty()) *tensor = tensor->WithUnitDimension();
    }
  }
  if (roles.has_space && operands.source.dims.size() > 2) SetCanonicalStrides(operands);
  return operands;
}

void CallOperands::ReadBias(const Attributes& attributes, int64_t length, int rank, int axis) {
  has_bias = attributes.Has("bias_type");
  if (has_bias) bias = BiasTensor(attributes, length, rank, axis).Widened();
}

OwnedMemoryDescriptor CallOperands::DescribeWeights() const {
  const bool any = weights_format == WeightsFormat::kAny || weights_format == WeightsFormat::kPrepacked;
  return any ? weights.DescribeAnyFormat() : weights.Describe();
}

bool CallOperands::ReversesWeights() const {
  const size_t spatial = source.dims.size() - 2;
  return weights_reversed && std::any_of(weights.dims.end() - static_cast<std::ptrdiff_t>(spatial), weights.dims.end(),
                                         [](int64_t size) { return size > 1; });
}

CallPlan WithExactSums(CallPlan plan) {
  if (!IsInteger(plan.operands[0].tensor.type)) return plan;
  const std::string made_for = plan.implementation.substr(plan.implementation.rfind(':') + 1);
  for (const char* exact : {"vnni", "bf16", "fp16", "amx", "avx10"}) {
    if (made_for.find(exact) != std::string::npos) return plan;
  }
  Unsupported(plan.implementation +
              ": products of eight bits would not be summed exactly, or slowly, on "
              "this processor");
}

int64_t ScratchpadBytes(const OwnedDescriptor& descriptor) {
  const Functions& onednn = Library::Get().functions();
  const MemoryDescriptor* scratchpad = onednn.primitive_desc_query_md(descriptor.get(), kQueryScratchpad, 0);
  return scratchpad == nullptr ? 0 : static_cast<int64_t>(onednn.memory_desc_get_size(scratchpad));
}

std::string ImplementationName(const PrimitiveDescriptor* descriptor) {
  const Library& library = Library::Get();
  const char* name = nullptr;
  library.Check(library.functions().primitive_desc_query(descriptor, kQueryImplementation, 0, &name),
                "asking which implementation was chosen");
  return name;
}

CallPlan MakePlan(const CallOperands& operands, OwnedDescriptor descriptor, const ArgumentIndices& indices) {
  const Library& library = Library::Get();
  CallPlan plan;
  plan.implementation = ImplementationName(descriptor.get());
  plan.operands.push_back({operands.source, indices.source, {}, {}});
  if (operands.has_weights()) plan.operands.push_back({operands.weights, indices.weights, {}, {}});
  plan.destination = {operands.destination, indices.destination, {}, {}};
  CheckRounding(plan);
  if (operands.source.stored != nullptr) plan.implementation += " of widened f16";
  plan.spatial_dimensions = operands.source.dims.size() - 2;

  plan.may_be_prepacked = operands.weights_format == WeightsFormat::kPrepacked;
  if (plan.may_be_prepacked) {
    Operand& weights = plan.operands[kWeightsOperand];
    plan.prepacked = PrepackedLayout::Of(
        weights.tensor, library.functions().primitive_desc_query_md(descriptor.get(), kQueryArgument, weights.index),
        operands.ReversesWeights());
    weights.packed_bytes = plan.prepacked.bytes;
  }

  MemoryLayout scratch, reorder_scratch;
  const bool gradient = indices.destination == kArgumentWeightsGradient;
  Operand* reversed =
      operands.weights_reversed ? &(gradient ? plan.destination : plan.operands[kWeightsOperand]) : nullptr;
  if (reversed != nullptr && reversed->is_prepacked()) reversed = nullptr;
  for (Operand& operand : plan.operands) {
    if (operand.is_prepacked()) continue;
    PlanReorder(library, descriptor, /*is_result=*/false, reorder_scratch, operand,
                &operand == reversed ? plan.spatial_dimensions : 0);
  }
  PlanReorder(library, descriptor, /*is_result=*/true, reorder_scratch, plan.destination);
  if (reversed != nullptr && !reversed->reorder.copy.has_value()) {
    reversed->reversed_offset = scratch.Reserve(reversed->tensor.Bytes());
  }
  const int64_t primitive_scratch = ScratchpadBytes(descriptor);
  plan.primitive_scratch_offset = scratch.Reserve(primitive_scratch);
  plan.scratch_bytes = scratch.bytes();

  if (operands.has_bias) plan.operands.push_back({operands.bias, kArgumentBias, {}, {}});
  for (const auto& [index, tensor] : operands.chain.operands) plan.operands.push_back({tensor, index, {}, {}});
  for (Operand& operand : plan.operands) PlanConversion(reorder_scratch, operand);
  PlanConversion(reorder_scratch, plan.destination);
  plan.reorder_scratch_bytes = reorder_scratch.bytes();
  plan.sums_in_place = operands.chain.sums_in_place;
  const bool writes_elsewhere = plan.destination.reorder.descriptor != nullptr || reversed == &plan.destination ||
                                plan.destination.conversion.has_value();
  if (plan.sums_in_place && writes_elsewhere) {
    Unsupported(plan.implementation + " writes its result in another layout first");
  }
  plan.multiply_adds = MultiplyAdds(operands, gradient);
  plan.descriptor = std::move(descriptor);
  return plan;
}

}  // namespace hlo_dispatch::onednn
