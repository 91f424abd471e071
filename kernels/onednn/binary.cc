// hlo_dispatch.onednn.binary
//
//   dst = post_ops(src), of which the first has an operand, which repeats where it is smaller:
//   dst[n, c, x] = post_ops( src[n, c, x] * operand[n, c] )
//
// for what lies between the calls of a sequence: gates, scales, sums. Operands: src, one per binary post-op.
// Results: dst, scratch.
#include <string>
#include <utility>

#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr Roles kRoles{"src", nullptr, "dst", /*has_space=*/false, /*may_be_packed=*/false, /*own_post_ops=*/1};

using CreateBinary = Status(PrimitiveDescriptor**, Engine*, Algorithm, const MemoryDescriptor*, const MemoryDescriptor*,
                            const MemoryDescriptor*, const PrimitiveAttributes*);

CallPlan Plan(const Attributes& attributes) {
  const Library& library = Library::Get();
  CallOperands operands = CallOperands::Read(attributes, kRoles);
  if (operands.source.dims.size() < 2) throw Failure(FailureKind::kInvalid, "src: expected at least 2 dimensions");
  if (operands.destination.dims != operands.source.dims) {
    throw Failure(FailureKind::kInvalid, "dst: expected the dimensions of src");
  }
  BinaryPostOp first = ReadBinaryPostOp(attributes, "post_op_0", operands.destination.dims);
  operands.weights = std::move(first.operand);
  PrimitiveDescriptor* descriptor = nullptr;
  library.Check(library.Function<CreateBinary>("binary_primitive_desc_create")(
                    &descriptor, library.engine(), first.algorithm, operands.source.Describe().get(),
                    operands.weights.Describe().get(), operands.destination.Describe().get(),
                    MakePrimitiveAttributes(operands.chain).get()),
                "choosing a binary operation");
  ArgumentIndices indices;
  indices.weights = kArgumentBinaryOperand;
  return MakePlan(operands, OwnedDescriptor(descriptor), indices);
}

const Family<Plan> family("binary", Weights::kNeverPacked, Joins::kSequencesInPlace);

}  // namespace

}  // namespace hlo_dispatch::onednn
