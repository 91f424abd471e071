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

// Blocks of weights are padded by at most one of so many bytes where one row shares them.
constexpr int64_t kMostPadding = 16;

CallPlan PlanWith(const Library& library, const CallOperands& operands, const MemoryDescriptor* weights) {
  OwnedMemoryDescriptor bias = operands.has_bias ? operands.bias.Describe() : nullptr;
  return MakePlan(operands,
                  Choose("choosing a matrix multiplication", library.functions().matmul_primitive_desc_create,
                         library.engine(), operands.source.Describe().get(), weights, bias.get(),
                         operands.destination.Describe().get(), MakePrimitiveAttributes(operands.chain).get()));
}

CallPlan PlanWith(const Library& library, const CallOperands& operands) {
  return PlanWith(library, operands, operands.DescribeWeights().get());
}

bool MayRepayCopy(const CallOperands& operands) {
  const Tensor& weights = operands.weights;
  const size_t rank = weights.dims.size();
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (weights.dims[i] != 1) return false;
  }
  return weights.type != ElementType::kF32 && operands.destination.dims[rank - 2] >= kRowsRepayingCopy;
}

// Whether a product of one row in half precision reads weights that several rows could share with it.
bool IsOneRowOfHalves(const CallOperands& operands) {
  const std::vector<int64_t>& dims = operands.destination.dims;
  const bool is_one = std::all_of(dims.begin(), dims.end() - 1, [](int64_t size) { return size == 1; });
  return is_one && operands.weights.type != ElementType::kF32 && !IsInteger(operands.weights.type);
}

// The product of two rows instead of one, without what follows it: only its layout is asked for.
OwnedDescriptor ChooseForTwoRows(const Library& library, const CallOperands& operands) {
  Tensor source = operands.source, destination = operands.destination;
  for (Tensor* tensor : {&source, &destination}) {
    const size_t rank = tensor->dims.size();
    tensor->dims[rank - 2] = 2;
    tensor->strides[rank - 2] = tensor->dims[rank - 1];
  }
  return Choose("choosing the layout of several rows", library.functions().matmul_primitive_desc_create,
                library.engine(), source.Describe().get(), operands.DescribeWeights().get(),
                static_cast<const MemoryDescriptor*>(nullptr), destination.Describe().get(),
                MakePrimitiveAttributes({}).get());
}

// Prepacked weights are read in brgemm's preferred layout: blocked, or column-major where the source is one row. A row
// in half precision takes the blocks of several rows, so that a prompt and the tokens behind it share one copy: memory
// limits it, and the order of reading does not matter (0.95x to 1.03x on a Zen 5). It does not where padding makes the
// blocks larger. A GEMM has no layout of its own: it asks for rows.
CallPlan PlanPrepacked(const Library& library, CallOperands& operands) {
  if (IsOneRowOfHalves(operands)) {
    const OwnedDescriptor several = ChooseForTwoRows(library, operands);
    const MemoryDescriptor* blocks =
        library.functions().primitive_desc_query_md(several.get(), kQueryArgument, kArgumentWeights);
    const int64_t bytes = static_cast<int64_t>(library.functions().memory_desc_get_size(blocks));
    if (bytes - operands.weights.Bytes() <= operands.weights.Bytes() / kMostPadding) {
      CallPlan shared = PlanWith(library, operands, blocks);
      if (shared.implementation.rfind("brg", 0) == 0) return shared;
    }
  }
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
  for (Tensor* tensor : {&operands.source, &operands.weights, &operands.destination}) {
    *tensor = tensor->WithCanonicalStrides(RowMajorOrder(tensor->dims.size()));
  }
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
