// hlo_dispatch.onednn.weights_gradient
//
//   diff_weights[o, i, k] = sum over n, p of src[n, i, p * strides + k * (dilations + 1) - padding_low]
//                                            * diff_dst[n, o, p]
//
// the gradient of a convolution with respect to its weights; strides, dilations and paddings are that convolution's.
// With one more dimension in front of diff_weights (g) its channels are split into groups, up to depthwise. With
// weights_reversed = 1 the result is reversed in every spatial dimension. Operands: src, diff_dst. Results:
// diff_weights, scratch. There are no post-ops.
#include <utility>

#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/plan.h"
#include "onednn/window.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr Roles kRoles{"src", "diff_dst", "diff_weights", /*has_space=*/true, /*may_be_prepacked=*/false};

CallPlan Plan(const Attributes& attributes) {
  const ConvolutionCall call = ConvolutionCall::Read(attributes, kRoles, kRoles.destination);
  if (attributes.Has("bias_type") || attributes.Has("post_op_0")) {
    Unsupported("oneDNN's weights gradient takes neither bias nor post-ops");
  }
  const Library& library = Library::Get();
  const CallOperands& operands = call.operands;
  const Window& window = call.window;
  CheckWindow(window, operands.destination.dims, /*from=*/operands.source, /*to=*/operands.weights);
  // The fast implementations sum into blocked weights and read the data with channels last: the small weights are
  // reordered in every call, and the data where it lies otherwise (a GEMM over plain weights is 2 to 50 times
  // slower; left to choose a layout for grouped data, oneDNN takes one that it has only a GEMM for).
  OwnedDescriptor descriptor =
      Choose("choosing a weights gradient", library.functions().convolution_backward_weights_primitive_desc_create,
             library.engine(), kConvolutionDirect, operands.source.WithChannelsLast().Describe().get(),
             operands.destination.DescribeAnyFormat().get(), nullptr,
             operands.weights.WithChannelsLast().Describe().get(), window.strides.data(), window.dilations.data(),
             window.padding_low.data(), window.padding_high.data(), nullptr, MakePrimitiveAttributes({}).get());
  return MakePlan(operands, std::move(descriptor),
                  {kArgumentSource, kArgumentDestinationGradient, kArgumentWeightsGradient});
}

const Family<PlannedCall<Plan>, kOneDnn> family("weights_gradient", {{}, "", kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::onednn
