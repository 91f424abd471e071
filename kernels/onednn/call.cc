#include "onednn/call.h"

#include <map>
#include <memory>
#include <string>

#include "common/failure.h"
#include "common/ffi_attributes.h"
#include "common/ffi_handler.h"
#include "common/machine_speed.h"
#include "common/operand_slices.h"
#include "common/parallel.h"
#include "common/pool_size.h"
#include "onednn/primitive.h"
#include "onednn/raw_call.h"

namespace hlo_dispatch::onednn {

namespace {

namespace ffi = xla::ffi;

struct CallState {
  static ffi::TypeId id;
  std::string target;
  Primitive primitive;
  bool has_helpers;
  OperandSlices slices;
};
ffi::TypeId CallState::id = {};

// Outside of a call group the result buffer holds no value for an in-place sum.
CallPlan Standalone(CallPlan plan) {
  if (plan.sums_in_place) Invalid("attribute 'accumulated': expected in a sequence's member alone");
  return plan;
}

std::unique_ptr<CallState> MakeState(const Kernel& kernel, Planner planner, const Attributes& attributes) {
  CheckCall(kernel, attributes);
  std::unique_ptr<CallState> state;
  Library::Get().ForPool([&] {
    CallPlan plan = Standalone(PlanChecked(kernel, planner, attributes));
    const bool has_helpers = MachineSpeed::Get().RepaysHelp(plan.MinSeconds());
    state.reset(new CallState{kernel.target(), Primitive(std::move(plan)), has_helpers, OperandSlices(attributes)});
  });
  return state;
}

void Run(CallState& state, const Parallel& parallel, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  const CallPlan& plan = state.primitive.plan();
  const OperandBuffers operands(state.slices, arguments);
  if (operands.size() != plan.operands.size()) {
    Invalid("expected " + std::to_string(plan.operands.size()) + " operands, got " + std::to_string(operands.size()));
  }
  if (results.size() != 2) Invalid("expected 2 results (dst, scratch), got " + std::to_string(results.size()));

  std::vector<void*> addresses;
  addresses.reserve(plan.operands.size());
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    const Operand& operand = plan.operands[i];
    addresses.push_back(operand.Begin(CheckedAddress(operand.spec(), operands[i])));
  }
  state.primitive.Execute(addresses, CheckedAddress(plan.destination.spec(), **results.get<ffi::AnyBuffer>(0)),
                          ScratchAddress(plan.scratch_bytes, **results.get<ffi::AnyBuffer>(1)), parallel);
}

ffi::Error Execute(ffi::ThreadPool pool, CallState* state, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  return Guarded(state->target.c_str(), [&] {
    const Parallel parallel(&pool);
    parallel.Gather(Library::Get().tbb(), PoolThreads(), state->has_helpers,
                    [&] { Run(*state, parallel, arguments, results); });
  });
}

XLA_FFI_DEFINE_HANDLER(
    execute, Execute,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ctx<ffi::State<CallState>>().RemainingArgs().RemainingRets());

[[maybe_unused]] const StateType& state_type = RegisterState<CallState>("hlo_dispatch.onednn.call");

// Made at the first use, which is before this file's static objects exist.
std::map<std::string, std::pair<const Kernel*, Planner>>& Planners() {
  static auto* planners = new std::map<std::string, std::pair<const Kernel*, Planner>>();
  return *planners;
}

}  // namespace

void CheckLibrary(const Attributes& attributes) {
  const std::string planned = attributes.Text("library");
  const std::string& loaded = Library::Get().version();
  if (planned != loaded) {
    Unavailable("this executable was planned for oneDNN " + planned + ", but oneDNN " + loaded +
                " is loaded; compile it again");
  }
}

CallPlan PlanChecked(const Kernel& kernel, Planner planner, const Attributes& attributes) {
  CheckCall(kernel, attributes);
  CheckLibrary(attributes);
  CallPlan plan = planner(attributes);
  if (plan.may_be_prepacked) plan.prepacked.Check(attributes, plan.implementation);
  const int64_t planned = attributes.Integer("scratch");
  if (plan.scratch_bytes > planned) {
    Invalid("attribute 'scratch': planned " + std::to_string(planned) + " bytes, but " + plan.implementation +
            " needs " + std::to_string(plan.scratch_bytes) +
            " here (was it planned on another machine or with other threads?); compile it again");
  }
  return plan;
}

void AddPlanner(const Kernel& kernel, Planner planner) { Planners()[kernel.name] = {&kernel, planner}; }

std::optional<std::pair<const Kernel*, Planner>> MemberPlanner(const std::string& target) {
  for (const auto& [name, found] : Planners()) {
    if (found.first->target() == target && !found.first->joined_by.empty()) return found;
  }
  return std::nullopt;
}

Planner PrepackablePlanner(const std::string& name) {
  const auto found = Planners().find(name);
  if (found != Planners().end() && !found->second.first->packed_by.empty()) return found->second.second;
  std::string names;
  for (const auto& [other, entry] : Planners()) {
    if (!entry.first->packed_by.empty()) names += (names.empty() ? "" : ", ") + other;
  }
  Invalid("attribute 'target': expected a kernel that takes packed weights (" + names + "), got '" + name + "'");
}

std::unique_ptr<ffi::Ffi> Instantiation(const Kernel& kernel, Planner planner) {
  return ffi::Ffi::BindInstantiate().Attrs().To([&kernel, planner](ffi::Dictionary dictionary) {
    return Instantiated(kernel.target(), [&] { return MakeState(kernel, planner, FfiAttributes(dictionary)); });
  });
}

XLA_FFI_Handler* Execution() { return execute; }

Answer AnswerOf(const Kernel& kernel, Planner planner, const Attributes& attributes) {
  CheckCall(kernel, attributes);
  CallPlan plan;
  Library::Get().ForPool([&] { plan = planner(attributes); });
  if (plan.may_be_prepacked) plan.prepacked.CheckIfDescribed(attributes, plan.implementation);
  return {plan.implementation, plan.scratch_bytes, plan.Reorders(), plan.prepacked.bytes, plan.prepacked.layout};
}

std::unique_ptr<RawCall> MakeRawCall(const Kernel& kernel, Planner planner, const Attributes& attributes,
                                     const std::vector<RawCall::OperandBuffer>& given) {
  CheckCall(kernel, attributes);
  return std::make_unique<RawPrimitive>(Standalone(planner(attributes)), given);
}

}  // namespace hlo_dispatch::onednn
