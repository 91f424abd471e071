// hlo_dispatch.onednn.matmul
//
//   dst[b.., m, n] = post_ops( bias[n] + sum over k of src[b.., m, k] * weights[b.., k, n] )
//
// A batch dimension of one is broadcast; transposed operands are a matter of strides. Operands: src, weights,
// [bias], one per binary post-op. Results: dst, scratch.
#include <string>

#include "common/failure.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

CallPlan PlanMatmul(const Attributes& attributes) {
  CheckAbi(attributes);
  const Library& library = Library::Get();
  CallOperands operands = CallOperands::Read(attributes);
  // Best is plain: matmul packs blocks of B on the fly, and reordering it all first never won (GEMV: 20x slower).
  if (operands.weights_format == WeightsFormat::kBest) operands.weights_format = WeightsFormat::kPlain;
  const size_t rank = operands.destination.dims.size();
  for (const Tensor* tensor : {&operands.source, &operands.weights}) {
    if (rank < 2 || tensor->dims.size() != rank) {
      throw Failure(FailureKind::kInvalid, tensor->role + ": expected as many dimensions as dst (" +
                                               std::to_string(rank) + ") and at least 2, got " +
                                               std::to_string(tensor->dims.size()));
    }
  }
  const int columns = static_cast<int>(rank) - 1;
  operands.ReadBias(attributes, /*length=*/operands.destination.dims[columns], static_cast<int>(rank), columns);

  OwnedMemoryDescriptor bias = operands.has_bias ? operands.bias.Describe() : nullptr;
  PrimitiveDescriptor* descriptor = nullptr;
  library.Check(library.functions().matmul_primitive_desc_create(
                    &descriptor, library.engine(), operands.source.Describe().get(),
                    operands.DescribeWeights().get(), bias.get(), operands.destination.Describe().get(),
                    MakePrimitiveAttributes(operands.chain).get()),
                "choosing a matrix multiplication");
  return MakePlan(operands, OwnedDescriptor(descriptor));
}

}  // namespace hlo_dispatch::onednn
