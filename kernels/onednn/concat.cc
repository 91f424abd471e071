// hlo_dispatch.onednn.concat
//
//   dst[r, ...] = src[r, ...], src_1[r, ...], src_2[r, ...], …        one behind the other
//
// Attribute 'sources' says how many there are. All are matrices of as many rows: what lies in front of the dimension
// along which arrays are joined is rows, the rest columns. Operands: src, src_1, … Results: dst, scratch.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

namespace {

constexpr Roles kRoles{"src", nullptr, "dst", /*has_space=*/false};
// More than any program has.
constexpr int64_t kMaxSources = 1024;
constexpr int kColumns = 1;

using CreateConcat = Status(PrimitiveDescriptor**, Engine*, const MemoryDescriptor*, int, int,
                            const MemoryDescriptor* const*, const PrimitiveAttributes*);

// The sources behind the first.
std::vector<Tensor> ReadFurtherSources(const Attributes& attributes) {
  const int64_t sources = attributes.Integer("sources");
  if (sources < 1 || sources > kMaxSources) {
    Invalid("attribute 'sources': expected 1 to " + std::to_string(kMaxSources) + ", got " + std::to_string(sources));
  }
  std::vector<Tensor> others;
  for (int64_t i = 1; i < sources; ++i) others.push_back(ReadTensor(attributes, "src_" + std::to_string(i)));
  return others;
}

void Check(const CallOperands& operands, const std::vector<Tensor>& others) {
  const Tensor& destination = operands.destination;
  int64_t columns = 0;
  auto add = [&](const Tensor& source) {
    if (source.dims.size() != 2) Invalid(source.role + ": expected 2 dimensions");
    if (source.dims[0] != operands.source.dims[0]) Invalid(source.role + ": expected as many rows as src");
    if (source.type != destination.type) Unsupported("oneDNN's concatenation gives the element type that it reads");
    columns = Sum(columns, source.dims[kColumns], "dst");
  };
  add(operands.source);
  for (const Tensor& other : others) add(other);
  if (destination.dims != std::vector<int64_t>{operands.source.dims[0], columns}) {
    Invalid("dst: expected the rows of src, and as many columns as all sources have");
  }
}

CallPlan Plan(const Attributes& attributes) {
  const Library& library = Library::Get();
  const std::vector<Tensor> others = ReadFurtherSources(attributes);
  if (attributes.Has("post_op_0")) Unsupported("oneDNN's concatenation takes no post-ops");
  const CallOperands operands = CallOperands::Read(attributes, kRoles);
  Check(operands, others);
  std::vector<OwnedMemoryDescriptor> described;
  described.push_back(operands.source.Describe());
  for (const Tensor& other : others) described.push_back(other.Describe());
  std::vector<const MemoryDescriptor*> sources;
  for (const OwnedMemoryDescriptor& source : described) sources.push_back(source.get());
  ArgumentIndices indices;
  indices.source = kArgumentSources;
  CallPlan plan =
      MakePlan(operands,
               Choose("choosing a concatenation", library.Function<CreateConcat>("concat_primitive_desc_create"),
                      library.engine(), operands.destination.Describe().get(), static_cast<int>(sources.size()),
                      kColumns, sources.data(), MakePrimitiveAttributes({}).get()),
               indices);
  // More than it joins at once, or a type that the processor does not know.
  if (plan.implementation.rfind("ref", 0) == 0) Unsupported("oneDNN would copy these sources one after the other");
  for (const Tensor& other : others) {
    const int index = kArgumentSources + static_cast<int>(plan.operands.size());
    plan.operands.push_back(Operand{other, index, {}, {}});
  }
  return plan;
}

const Family<PlannedCall<Plan>, kOneDnn> family("concat", {{}, "", kOneDnnCallGroup, false, /*only_copies=*/true});

}  // namespace

}  // namespace hlo_dispatch::onednn
