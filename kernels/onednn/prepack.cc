// hlo_dispatch.onednn.pack
//
//   packed = weights, in the preferred layout of a call's primitive
//
// Weight prepacking, for a call of the kernel that attribute 'target' names (onednn.matmul), with weights_format
// packed; all attributes of that call are given, too. Reversed weights are reversed here. Operands: weights, as the
// call would read them plain. Results: packed (u8), scratch.
#include <string>
#include <utility>

#include "common/failure.h"
#include "onednn/call.h"
#include "onednn/memory_layout.h"
#include "onednn/plan.h"

namespace hlo_dispatch::onednn {

namespace {

CallPlan PlanOfCall(const Attributes& attributes) {
  const std::string target = attributes.Text("target");
  if (attributes.Text("weights_format") != "packed") {
    Invalid("attribute 'weights_format': expected packed, got '" + attributes.Text("weights_format") + "'");
  }
  CallPlan call = PrepackablePlanner(target)(attributes);
  call.prepacked.CheckIfDescribed(attributes, call.implementation);
  if (call.prepacked.bytes == 0) {
    Unsupported(call.implementation + " of " + target + " reads these weights as they are: there is nothing to pack");
  }
  return call;
}

CallPlan Plan(const Attributes& attributes) { return PlanPrepack(PlanOfCall(attributes)); }

const Family<PlannedCall<Plan>, kOneDnn> family("pack");

}  // namespace

CallPlan PlanPrepack(const CallPlan& call) {
  const Library& library = Library::Get();
  const Operand& weights = call.operands[kWeightsOperand];
  const MemoryDescriptor* preferred =
      library.functions().primitive_desc_query_md(call.descriptor.get(), kQueryArgument, weights.index);
  CallPlan plan;
  plan.descriptor = Choose("weights: choosing a reorder between their layout and the preferred one",
                           library.functions().reorder_primitive_desc_create, weights.tensor.Describe().get(),
                           library.engine(), preferred, library.engine(), MakePrimitiveAttributes({}).get());
  plan.implementation = call.implementation;  // which the weights are prepacked for
  plan.spatial_dimensions = call.spatial_dimensions;
  plan.operands.push_back({weights.tensor, kArgumentSource, {}, {}});
  plan.destination = {weights.tensor, kArgumentDestination, {}, {}, call.prepacked.bytes};
  plan.destination.tensor.role = "packed";
  MemoryLayout scratch, reorder_scratch;
  PlanConversion(reorder_scratch, plan.operands[0]);
  plan.reorder_scratch_bytes = reorder_scratch.bytes();
  if (call.prepacked.reversed) plan.operands[0].reversed_offset = scratch.Reserve(weights.tensor.Bytes());
  plan.primitive_scratch_offset = scratch.Reserve(ScratchpadBytes(plan.descriptor));
  plan.scratch_bytes = scratch.bytes();
  return plan;
}

}  // namespace hlo_dispatch::onednn
