// hlo_dispatch.onednn.convolution
//
//   dst[n, o, x] = post_ops( bias[o] + sum over i, k of src[n, i, x * strides + k * (dilations + 1) - padding_low]
//                                                       * weights[o, i, k] )
//
// in one, two or three spatial dimensions; with one more dimension in front of the weights (g) the channels are
// split into groups, up to depthwise. Operands: src, weights, [bias], one per binary post-op. Results: dst, scratch.
#include <string>
#include <utility>

#include "common/failure.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

namespace {

void CheckRanks(const CallOperands& operands) {
  const size_t rank = operands.source.dims.size();
  if (rank < 3 || rank > 5) {
    throw Failure(FailureKind::kInvalid, "src: expected 3 to 5 dimensions (batch, channels, 1 to 3 spatial), got " +
                                             std::to_string(rank));
  }
  if (operands.destination.dims.size() != rank) {
    throw Failure(FailureKind::kInvalid, "dst: expected as many dimensions as src (" + std::to_string(rank) +
                                             "), got " + std::to_string(operands.destination.dims.size()));
  }
  const size_t weights_rank = operands.weights.dims.size();
  if (weights_rank != rank && weights_rank != rank + 1) {
    throw Failure(FailureKind::kInvalid, "weights: expected " + std::to_string(rank) + " dimensions, or " +
                                             std::to_string(rank + 1) + " with groups, got " +
                                             std::to_string(weights_rank));
  }
}

}  // namespace

CallPlan PlanConvolution(const Attributes& attributes) {
  const Library& library = Library::Get();
  CallOperands operands = CallOperands::Read(attributes);
  CheckRanks(operands);
  operands.ReadBias(attributes, /*length=*/operands.destination.dims[1], /*rank=*/1, /*axis=*/0);

  const size_t spatial = operands.source.dims.size() - 2;
  const auto strides = ReadIntegers(attributes, "strides", spatial);
  const auto dilations = ReadIntegers(attributes, "dilations", spatial);
  const auto padding_low = ReadIntegers(attributes, "padding_low", spatial);
  const auto padding_high = ReadIntegers(attributes, "padding_high", spatial);

  OwnedMemoryDescriptor bias = operands.has_bias ? operands.bias.Describe() : nullptr;
  PrimitiveDescriptor* descriptor = nullptr;
  library.Check(library.functions().convolution_forward_primitive_desc_create(
                    &descriptor, library.engine(), kForwardInference, kConvolutionDirect,
                    operands.source.Describe().get(), operands.DescribeWeights().get(), bias.get(),
                    operands.destination.Describe().get(), strides.data(), dilations.data(), padding_low.data(),
                    padding_high.data(), MakePrimitiveAttributes(operands.chain).get()),
                "choosing a convolution");
  return MakePlan(std::move(operands), OwnedDescriptor(descriptor));
}

}  // namespace hlo_dispatch::onednn
