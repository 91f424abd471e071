// hlo_dispatch.onednn.deconvolution
//
//   dst[n, o, p * strides + k * (dilations + 1) - padding_low]
//       += src[n, i, p] * weights[o, i, k]    over all i, p, k;    dst = post_ops(dst + bias[o])
//
// the transposed convolution, or the gradient of a strided convolution with respect to its input. With one more
// dimension in front of the weights (g) the channels are split into groups. With weights_reversed = 1 the k-th
// weight is the operand's (K-1-k)-th in every spatial dimension. Operands: src, weights, [bias], one per binary
// post-op. Results: dst, scratch.
#include <optional>
#include <string>
#include <utility>

#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/disjoint_windows.h"
#include "onednn/matmul.h"
#include "onednn/plan.h"
#include "onednn/window.h"

namespace hlo_dispatch::onednn {

namespace {

// oneDNN's own deconvolution: the convolution kernels run backwards, with the epilogue inside.
OwnedDescriptor Deconvolution(const CallOperands& operands, const Window& window) {
  const Library& library = Library::Get();
  OwnedMemoryDescriptor bias = operands.has_bias ? operands.bias.Describe() : nullptr;
  return Choose("choosing a deconvolution", library.functions().deconvolution_forward_primitive_desc_create,
                library.engine(), kForwardInference, kDeconvolutionDirect, operands.source.Describe().get(),
                operands.weights.DescribeAnyFormat().get(), bias.get(), operands.destination.Describe().get(),
                window.strides.data(), window.dilations.data(), window.padding_low.data(), window.padding_high.data(),
                MakePrimitiveAttributes(operands.chain).get());
}

bool StartsWith(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// The same sums as the gradient of a convolution with respect to its input, which has no epilogue. Takes the
// first implementation made for groups: ahead of those oneDNN lists matrix multiplications over one channel each
// (Zen 5, bf16, 144 channels of 56x56: 1.2 against 0.03 ms).
OwnedDescriptor InputGradient(const CallOperands& operands, const Window& window) {
  const Library& library = Library::Get();
  OwnedDescriptor descriptor =
      Choose("choosing a convolution's input gradient",
             library.functions().convolution_backward_data_primitive_desc_create, library.engine(), kConvolutionDirect,
             operands.destination.Describe().get(), operands.weights.DescribeAnyFormat().get(),
             operands.source.Describe().get(), window.strides.data(), window.dilations.data(),
             window.padding_low.data(), window.padding_high.data(), nullptr, MakePrimitiveAttributes({}).get());
  while (StartsWith(ImplementationName(descriptor.get()), "brg")) {
    if (library.functions().primitive_desc_next_impl(descriptor.get()) != kSuccess) break;
  }
  return descriptor;
}

// The product that a window without overlap is (disjoint_windows.h), where oneDNN has a fast one.
std::optional<CallPlan> PlanAsProduct(const CallOperands& operands, const Window& window) {
  std::optional<CallOperands> product = ProductOfDisjointWindows(operands, window);
  if (!product.has_value()) return std::nullopt;
  CallPlan plan = PlanMatmul(std::move(*product));
  if (!StartsWith(plan.implementation, "brg")) return std::nullopt;
  return plan;
}

// Fewer channels than this in a group leave a matrix multiplication's vectors mostly empty.
constexpr int64_t kChannelsFillingVectors = 16;

CallPlan Plan(const Attributes& attributes) {
  ConvolutionCall call = ConvolutionCall::Read(attributes, Roles(), "weights");
  CallOperands& operands = call.operands;
  CheckWindow(call.window, operands.weights.dims, /*from=*/operands.destination, /*to=*/operands.source);
  operands.ReadBias(attributes, /*length=*/operands.destination.dims[1], /*rank=*/1, /*axis=*/0);
  const bool grouped = operands.weights.dims.size() > operands.source.dims.size();
  const bool has_epilogue = operands.has_bias || attributes.Has("post_op_0");
  const bool narrow = grouped && (operands.weights.dims[1] < kChannelsFillingVectors ||
                                  operands.weights.dims[2] < kChannelsFillingVectors);
  if (!has_epilogue) {
    if (std::optional<CallPlan> product = PlanAsProduct(operands, call.window)) return std::move(*product);
  }
  if (narrow && !has_epilogue) {
    // The convolution whose gradient this is goes from dst to src: its outputs are our inputs.
    operands.weights = operands.weights.WithSwapped(1, 2);
    OwnedDescriptor descriptor = InputGradient(operands, call.window);
    return MakePlan(operands, std::move(descriptor),
                    {kArgumentDestinationGradient, kArgumentWeights, kArgumentSourceGradient});
  }
  OwnedDescriptor descriptor = Deconvolution(operands, call.window);
  // oneDNN's other implementations apply bias and post-ops element by element (1 ms for 50,000 elements).
  if (has_epilogue && (narrow || !StartsWith(ImplementationName(descriptor.get()), "brg_deconv"))) {
    Unsupported("oneDNN has no fast deconvolution of this shape with bias or post-ops");
  }
  return MakePlan(operands, std::move(descriptor));
}

const Family<PlannedCall<Plan>, kOneDnn> family("deconvolution", {{}, kOneDnnPack, kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::onednn
