#include "onednn/post_ops.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/failure.h"

namespace hlo_dispatch::onednn {

namespace {

const std::map<std::string, Algorithm>& EltwiseAlgorithms() {
  static const auto* algorithms = new std::map<std::string, Algorithm>{
      {"relu", kEltwiseRelu},
      {"tanh", kEltwiseTanh},
      {"elu", kEltwiseElu},
      {"square", kEltwiseSquare},
      {"abs", kEltwiseAbs},
      {"sqrt", kEltwiseSqrt},
      {"linear", kEltwiseLinear},
      {"soft_relu", kEltwiseSoftRelu},
      {"hardsigmoid", kEltwiseHardSigmoid},
      {"logistic", kEltwiseLogistic},
      {"exp", kEltwiseExp},
      {"gelu_tanh", kEltwiseGeluTanh},
      {"swish", kEltwiseSwish},
      {"log", kEltwiseLog},
      {"clip", kEltwiseClip},
      {"clip_v2", kEltwiseClipV2},
      {"pow", kEltwisePow},
      {"gelu_erf", kEltwiseGeluErf},
      {"round", kEltwiseRound},
      {"mish", kEltwiseMish},
      {"hardswish", kEltwiseHardSwish},
  };
  return *algorithms;
}

const std::map<std::string, Algorithm>& BinaryAlgorithms() {
  static const auto* algorithms = new std::map<std::string, Algorithm>{
      {"add", kBinaryAdd}, {"mul", kBinaryMul}, {"max", kBinaryMax}, {"min", kBinaryMin},
      {"div", kBinaryDiv}, {"sub", kBinarySub}, {"ge", kBinaryGe},   {"gt", kBinaryGt},
      {"le", kBinaryLe},   {"lt", kBinaryLt},   {"eq", kBinaryEq},   {"ne", kBinaryNe},
  };
  return *algorithms;
}

constexpr int kMaxPostOps = 32;
constexpr int kPostOpStep = 32768;
constexpr int kOlderPostOpStep = 16384;

// Asks the library itself which step it was built with: a primitive whose only post-op is binary knows that
// operand under the right index and no other.
int FindPostOpStep() {
  const Library& library = Library::Get();
  const Functions& onednn = library.functions();
  const Tensor one{"probe", ElementType::kF32, {1, 1}, {1, 1}};
  OwnedMemoryDescriptor memory = one.Describe();
  PostOps* post_ops = nullptr;
  library.Check(onednn.post_ops_create(&post_ops), "probing post-ops");
  PostOpChain chain{OwnedPostOps(post_ops), {}};
  library.Check(onednn.post_ops_append_binary(post_ops, kBinaryAdd, memory.get()), "probing post-ops");
  OwnedDescriptor descriptor =
      Choose("probing post-ops", onednn.matmul_primitive_desc_create, library.engine(), memory.get(), memory.get(),
             nullptr, memory.get(), MakePrimitiveAttributes(chain).get());
  const MemoryDescriptor* found =
      onednn.primitive_desc_query_md(descriptor.get(), kQueryArgument, kPostOpStep | kArgumentBinaryOperand);
  const bool known = found != nullptr && onednn.memory_desc_equal(found, memory.get());
  return known ? kPostOpStep : kOlderPostOpStep;
}

// The argument index of binary post-op number `position`'s second operand.
int OperandIndex(int position, const std::string& role) {
  static const int step = FindPostOpStep();
  // With the larger step the 32nd index collides with another argument of oneDNN's.
  if (step == kPostOpStep && position >= 31) {
    Unsupported(role + ": oneDNN takes a binary operand only up to post_op_30");
  }
  return step * (position + 1) | kArgumentBinaryOperand;
}

}  // namespace

PostOpChain ReadPostOps(const Attributes& attributes, const std::vector<int64_t>& dims, bool add_unit_dimension,
                        int skipped, bool widens) {
  const Library& library = Library::Get();
  PostOps* post_ops = nullptr;
  library.Check(library.functions().post_ops_create(&post_ops), "creating the post-op chain");
  PostOpChain chain{OwnedPostOps(post_ops), {}};

  const int length = CountPostOps(attributes, kMaxPostOps, "oneDNN");
  for (int i = skipped; i < length; ++i) {
    const std::string role = "post_op_" + std::to_string(i);
    std::unique_ptr<Attributes> post_op = attributes.Nested(role);
    const std::string kind = post_op->Text("kind");
    if (kind == "sum") {
      if (chain.sums_in_place || !attributes.Has("accumulated")) {
        Invalid(role + ".kind: expected one sum at most, with attribute 'accumulated'");
      }
      library.Check(library.functions().post_ops_append_sum(post_ops, 1.0f, /*zero_point=*/0, /*type=*/0),
                    role + ": appending a sum");
      chain.sums_in_place = true;
      continue;
    }
    const std::string algorithm = post_op->Text("algorithm");
    if (kind == "eltwise") {
      library.Check(library.functions().post_ops_append_eltwise(
                        post_ops, Named(EltwiseAlgorithms(), algorithm, role + ".algorithm"), post_op->Real("alpha"),
                        post_op->Real("beta")),
                    role + ": appending eltwise " + algorithm);
    } else if (kind == "binary") {
      auto [found, operand] = ReadBinaryPostOp(attributes, role, dims);
      if (widens) operand = operand.Widened();
      if (add_unit_dimension) operand = operand.WithUnitDimension();
      library.Check(library.functions().post_ops_append_binary(post_ops, found, operand.Describe().get()),
                    role + ": appending binary " + algorithm);
      chain.operands.emplace_back(OperandIndex(i - skipped, role), std::move(operand));
    } else {
      Invalid(role + ".kind: expected eltwise, binary or sum, got '" + kind + "'");
    }
  }
  if (attributes.Has("accumulated") && !chain.sums_in_place) {
    Invalid("attribute 'accumulated': expected a post-op of the kind sum");
  }
  return chain;
}

BinaryPostOp ReadBinaryPostOp(const Attributes& attributes, const std::string& role, const std::vector<int64_t>& dims) {
  std::unique_ptr<Attributes> post_op = attributes.Nested(role);
  const std::string kind = post_op->Text("kind");
  if (kind != "binary") Invalid(role + ".kind: expected binary, got '" + kind + "'");
  Tensor operand = ReadOperand(*post_op, role);
  CheckRepeats(operand, dims);
  return {Named(BinaryAlgorithms(), post_op->Text("algorithm"), role + ".algorithm"), std::move(operand)};
}

OwnedAttributes MakePrimitiveAttributes(const PostOpChain& chain) {
  const Library& library = Library::Get();
  const Functions& onednn = library.functions();
  PrimitiveAttributes* attributes = nullptr;
  library.Check(onednn.primitive_attr_create(&attributes), "creating primitive attributes");
  OwnedAttributes owned(attributes);
  library.Check(onednn.primitive_attr_set_scratchpad_mode(attributes, kScratchpadUser), "setting the scratchpad mode");
  library.Check(onednn.primitive_attr_set_fpmath_mode(attributes, kFloatMathStrict), "setting strict arithmetic");
  if (chain.post_ops != nullptr) {
    library.Check(onednn.primitive_attr_set_post_ops(attributes, chain.post_ops.get()), "attaching the post-ops");
  }
  return owned;
}

}  // namespace hlo_dispatch::onednn
