// hlo_dispatch.onednn.matmul
//
//   dst[b.., m, n] = post_ops( bias[n] + sum over k of src[b.., m, k] * weights[b.., k, n] )
//
// A batch dimension of one is broadcast; transposed operands are a matter of strides. Operands: src, weights,
// [bias], one per binary post-op. Results: dst, scratch.
#include "onednn/matmul.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr Roles kRoles{"src", "weights", "dst", /*has_space=*/false};

// From so many rows on, weights in half precision are reordered once a call, by an own copy, rather than in blocks by
// each thread that reads them. Measured on a Zen 5, with cold weights: 4096x320x320 1.26x, 3136x384x96 1.27x,
// 1024x768x3072 1.04x, but 128x768x3072 0.95x. In f32 nothing is gained below 3072 columns of the source.
constexpr int64_t kRowsRepayingCopy = 1024;

CallPlan PlanWith(const Library& library, const CallOperands& operands) {
  OwnedMemoryDescriptor bias = operands.has_bias ? operands.bias.Describe() : nullptr;
  return MakePlan(
      operands, Choose("choosing a matrix multiplication", library.functions().matmul_primitive_desc_create,
                       library.engine(), operands.source.Describe().get(), operands.DescribeWeights().get(), bias.get(),
                       operands.destination.Describe().get(), MakePrimitiveAttributes(operands.chain).get()));
}

bool MayRepayCopy(const CallOperands& operands) {
  const Tensor& weights = operands.weights;
  const size_t rank = weights.dims.size();
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (weights.dims[i] != 1) return false;
  }
  return weights.type != ElementType::kF32 && operands.destination.dims[rank - 2] >= kRowsRepayingCopy;
}

// Prepacked weights are read in brgemm's preferred layout: blocked, or column-major where the source is one row. A GEMM
// has no layout of its own: it asks for rows.
CallPlan PlanPrepacked(const Library& library, CallOperands& operands) {
  CallPlan prepacked = PlanWith(library, operands);
  if (prepacked.implementation.rfind("brg", 0) == 0) return prepacked;
  operands.weights_format = WeightsFormat::kPlain;
  CallPlan plain = PlanWith(library, operands);
  plain.may_be_prepacked = true;  // the attributes are to agree that nothing is
  return plain;
}

// Whether the matrices of a batch lie in each other beside a batch dimension of one: brgemm of oneDNN 3.13.2 takes some
// of these strides for other ones.
bool IsInterleavedBesideOne(const Tensor& tensor) {
  const size_t batches = tensor.dims.size() - 2;
  int64_t extent = 0;
  for (size_t i = batches; i < tensor.dims.size(); ++i) {
    extent = std::max(extent, (tensor.dims[i] - 1) * tensor.strides[i]);
  }
  bool has_one = false, is_interleaved = false;
  for (size_t i = 0; i < batches; ++i) {
    has_one |= tensor.dims[i] == 1;
    is_interleaved |= tensor.dims[i] > 1 && tensor.strides[i] <= extent;
  }
  return has_one && is_interleaved;
}

CallPlan PlanOfTypes(const Attributes& attributes) {
  CallOperands operands = CallOperands::Read(attributes, kRoles);
  const size_t rank = operands.destination.dims.size();
  for (const Tensor* tensor : {&operands.source, &operands.weights}) {
    if (rank < 2 || tensor->dims.size() != rank) {
      Invalid(tensor->role + ": expected as many dimensions as dst (" + std::to_string(rank) +
              ") and at least 2, got " + std::to_string(tensor->dims.size()));
    }
    if (IsInterleavedBesideOne(*tensor)) {
      Unsupported(tensor->role + ": matrices of a batch lie in each other, beside a batch dimension of one");
    }
  }
  const int columns = static_cast<int>(rank) - 1;
  operands.ReadBias(attributes, /*length=*/operands.destination.dims[columns], static_cast<int>(rank), columns);

  return PlanMatmul(std::move(operands));
}

CallPlan Plan(const Attributes& attributes) { return WithExactSums(PlanOfTypes(attributes)); }

const Family<PlannedCall<Plan>, kOneDnn> family("matmul", {{}, kOneDnnPack, kOneDnnCallGroup});

}  // namespace

CallPlan PlanMatmul(CallOperands operands) {
  const Library& library = Library::Get();
  if (operands.weights_format == WeightsFormat::kPrepacked) return PlanPrepacked(library, operands);
  if (operands.weights_format != WeightsFormat::kBest) return PlanWith(library, operands);
  if (MayRepayCopy(operands)) {
    operands.weights_format = WeightsFormat::kAny;
    CallPlan reordered = PlanWith(library, operands);
    if (reordered.Copies()) return reordered;
  }
  // Plain: matmul packs blocks of B on the fly (GEMV on reordered weights: 20x slower).
  operands.weights_format = WeightsFormat::kPlain;
  return PlanWith(library, operands);
}

}  // namespace hlo_dispatch::onednn
