// hlo_dispatch.onednn.convolution
//
//   dst[n, o, x] = post_ops( bias[o] + sum over i, k of src[n, i, x * strides + k * (dilations + 1) - padding_low]
//                                                       * weights[o, i, k] )
//
// in one, two or three spatial dimensions; with one more dimension in front of the weights (g) the channels are
// split into groups, up to depthwise. Operands: src, weights, [bias], one per binary post-op. Results: dst, scratch.
#include <cstdint>
#include <string>
#include <utility>

#include "onednn/call.h"
#include "onednn/plan.h"
#include "onednn/window.h"

namespace hlo_dispatch::onednn {

namespace {

CallPlan PlanWith(CallOperands& operands, const Window& window, WeightsFormat weights_format) {
  const Library& library = Library::Get();
  operands.weights_format = weights_format;
  OwnedMemoryDescriptor bias = operands.has_bias ? operands.bias.Describe() : nullptr;
  return MakePlan(
      operands,
      Choose("choosing a convolution", library.functions().convolution_forward_primitive_desc_create, library.engine(),
             kForwardInference, kConvolutionDirect, operands.source.Describe().get(), operands.DescribeWeights().get(),
             bias.get(), operands.destination.Describe().get(), window.strides.data(), window.dilations.data(),
             window.padding_low.data(), window.padding_high.data(), MakePrimitiveAttributes(operands.chain).get()));
}

// From so many result positions on, large f32 weights are better reordered although oneDNN runs the same implementation
// on plain ones: their rows are far apart, which costs it up to a third. Measured on a Zen 5, with cold weights:
// 3x3x1280x1280 at 16x16 positions 1.19x, 3x3x512x512 at 8x7x7 1.15x, but at 7x7 0.78x.
constexpr int64_t kPositionsRepayingCopy = 256;
constexpr int64_t kLargeWeightsBytes = 1024 * 1024;

// An own copy is cheap; oneDNN's reorder is not. It needs more positions: on the same processor 1x1 weights of 2048x512
// in bf16 lose by it at 7x7 positions (0.40 against 0.22 ms) and win at 14x14.
constexpr int64_t kPositionsRepayingReorder = 64;

int64_t Positions(const CallOperands& operands) {
  int64_t positions = operands.destination.dims[0];
  for (size_t i = 2; i < operands.destination.dims.size(); ++i) positions *= operands.destination.dims[i];
  return positions;
}

// A window of so many weights for each pair of channels, on as many positions as repay a copy, may be read in another
// form once its weights are packed: those of one channel as one row, where plain ones are as many products of one
// number. Measured on a Xeon with AVX-512 and oneDNN 3.13, one channel: 6x6 0.9x to 1.2x, 11x11 1.5x, 50 2x, 1x100 7x,
// but 3x3 0.5x to 1.0x. Other instruction sets were not measured.
constexpr int64_t kWindowInAnotherVariant = 32;

int64_t WindowSize(const CallOperands& operands) {
  const size_t spatial = operands.source.dims.size() - 2;
  int64_t size = 1;
  for (auto i = operands.weights.dims.end() - static_cast<std::ptrdiff_t>(spatial); i != operands.weights.dims.end();
       ++i) {
    size *= *i;
  }
  return size;
}

bool MayHaveAnotherVariant(const CallOperands& operands, const std::string& implementation) {
  const auto is_for = [&](const char* set) { return implementation.find(set) != std::string::npos; };
  return (is_for("avx512") || is_for("avx10")) && WindowSize(operands) >= kWindowInAnotherVariant &&
         Positions(operands) >= kPositionsRepayingCopy;
}

// Plain weights where oneDNN runs the same implementation on them (f32 brgemm) and a copy would not repay itself. The
// same implementation may have another variant for reordered weights, which its scratchpad size shows. Otherwise plain
// ones would lead to an im2col GEMM or to a dense kernel for a depthwise convolution, 1.3 to 50 times slower, so they
// are reordered, unless oneDNN would have to do that and there is too little to gain.
//
// A query takes oneDNN 0.1 to 0.5 ms, so known answers are not queried again.
CallPlan PlanBest(CallOperands& operands, const Window& window) {
  const bool grouped = operands.weights.dims.size() > operands.source.dims.size();
  const int64_t positions = Positions(operands);
  const bool worth_packing = positions >= kPositionsRepayingCopy && operands.weights.Bytes() >= kLargeWeightsBytes;
  if (!grouped && operands.weights.type == ElementType::kF32 && !worth_packing) {
    CallPlan plain = PlanWith(operands, window, WeightsFormat::kPlain);
    const bool is_fast = plain.implementation.rfind("brg", 0) == 0;
    if (is_fast && !MayHaveAnotherVariant(operands, plain.implementation)) return plain;
    if (is_fast) {
      CallPlan reordered = PlanWith(operands, window, WeightsFormat::kAny);
      const bool is_same = ScratchpadBytes(reordered.descriptor) == ScratchpadBytes(plain.descriptor);
      return reordered.implementation != plain.implementation || is_same ? std::move(plain) : std::move(reordered);
    }
  }
  CallPlan reordered = PlanWith(operands, window, WeightsFormat::kAny);
  if (!reordered.Reorders() || reordered.Copies()) return reordered;
  CallPlan plain = PlanWith(operands, window, WeightsFormat::kPlain);
  if (plain.implementation == reordered.implementation) return plain;
  const bool pays = grouped || positions >= kPositionsRepayingReorder || plain.implementation.rfind("ref", 0) == 0;
  return pays ? std::move(reordered) : std::move(plain);
}

CallPlan Plan(const Attributes& attributes) {
  ConvolutionCall call = ConvolutionCall::Read(attributes, Roles(), "weights");
  CallOperands& operands = call.operands;
  CheckWindow(call.window, operands.weights.dims, /*from=*/operands.source, /*to=*/operands.destination);
  operands.ReadBias(attributes, /*length=*/operands.destination.dims[1], /*rank=*/1, /*axis=*/0);
  // Several implementations take weights with holes between them for dense ones; a reorder does not.
  const bool prepacked = operands.weights_format == WeightsFormat::kPrepacked;
  if (operands.weights.elements > 0 && !prepacked) operands.weights_format = WeightsFormat::kAny;
  if (operands.weights_format == WeightsFormat::kBest) return WithExactSums(PlanBest(operands, call.window));
  return WithExactSums(PlanWith(operands, call.window, operands.weights_format));
}

const Family<PlannedCall<Plan>, kOneDnn> family("convolution", {{}, kOneDnnPack, kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::onednn
