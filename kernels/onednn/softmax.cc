// hlo_dispatch.onednn.softmax
//
//   softmax:     dst[..., j] = exp(src[..., j] - m) / sum over k of exp(src[..., k] - m)
//   log_softmax: dst[..., j] = src[..., j] - m - log(sum over k of exp(src[..., k] - m))
//
// where m is the largest src[..., k]; attribute 'algorithm' says which. Operands: src. Results: dst, scratch.
#include <string>

#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr Roles kRoles{"src", nullptr, "dst", /*has_space=*/false};
constexpr Algorithm kSoftmaxAccurate = static_cast<Algorithm>(0x30000);
constexpr Algorithm kSoftmaxLog = static_cast<Algorithm>(0x30001);

using CreateSoftmax = Status(PrimitiveDescriptor**, Engine*, PropagationKind, Algorithm, const MemoryDescriptor*,
                             const MemoryDescriptor*, int, const PrimitiveAttributes*);

Algorithm ReadAlgorithm(const Attributes& attributes) {
  const std::string name = attributes.Text("algorithm");
  if (name == "softmax") return kSoftmaxAccurate;
  if (name == "log_softmax") return kSoftmaxLog;
  Invalid("attribute 'algorithm': expected softmax or log_softmax, got '" + name + "'");
}

CallPlan Plan(const Attributes& attributes) {
  const Library& library = Library::Get();
  const CallOperands operands = CallOperands::Read(attributes, kRoles);
  const size_t rank = operands.source.dims.size();
  if (rank < 2) Invalid("src: expected at least 2 dimensions, got " + std::to_string(rank));
  if (operands.destination.dims != operands.source.dims) Invalid("dst: expected the dimensions of src");
  return MakePlan(
      operands, Choose("choosing a softmax", library.Function<CreateSoftmax>("softmax_forward_primitive_desc_create"),
                       library.engine(), kForwardInference, ReadAlgorithm(attributes), operands.source.Describe().get(),
                       operands.destination.Describe().get(), static_cast<int>(rank) - 1,
                       MakePrimitiveAttributes(operands.chain).get()));
}

const Family<PlannedCall<Plan>, kOneDnn> family("softmax", {{}, "", kOneDnnCallGroup});

}  // namespace

}  // namespace hlo_dispatch::onednn
