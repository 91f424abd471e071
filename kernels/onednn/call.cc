#include "onednn/call.h"

#include <exception>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "common/failure.h"
#include "common/ffi_attributes.h"
#include "common/ffi_failure.h"
#include "common/machine_speed.h"
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
};
ffi::TypeId CallState::id = {};

void CheckLibrary(const Attributes& attributes) {
  const std::string planned = attributes.Text("library");
  const std::string& loaded = Library::Get().version();
  if (planned != loaded) {
    Unavailable("this executable was planned for oneDNN " + planned + ", but oneDNN " + loaded +
                " is loaded; compile it again");
  }
}

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
    state.reset(new CallState{kernel.target(), Primitive(std::move(plan)), has_helpers});
  });
  return state;
}

void Run(Primitive& primitive, const Parallel& parallel, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  const CallPlan& plan = primitive.plan();
  if (arguments.size() != plan.operands.size()) {
    Invalid("expected " + std::to_string(plan.operands.size()) + " operands, got " + std::to_string(arguments.size()));
  }
  if (results.size() != 2) Invalid("expected 2 results (dst, scratch), got " + std::to_string(results.size()));

  std::vector<void*> addresses;
  addresses.reserve(plan.operands.size());
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    ffi::AnyBuffer buffer = *arguments.get<ffi::AnyBuffer>(i);
    CheckBuffer(plan.operands[i].tensor.role, plan.operands[i].Expected(), buffer);
    addresses.push_back(plan.operands[i].Begin(buffer.untyped_data()));
  }
  ffi::AnyBuffer destination = **results.get<ffi::AnyBuffer>(0);
  CheckBuffer(plan.destination.tensor.role, plan.destination.Expected(), destination);
  primitive.Execute(addresses, destination.untyped_data(),
                    ScratchAddress(plan.scratch_bytes, **results.get<ffi::AnyBuffer>(1)), parallel);
}

ffi::Error Execute(ffi::ThreadPool pool, CallState* state, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  return Guarded(state->target.c_str(), [&] {
    const Parallel parallel(&pool);
    parallel.Gather(Library::Get().tbb(), PoolThreads(), state->has_helpers,
                    [&] { Run(state->primitive, parallel, arguments, results); });
  });
}

XLA_FFI_DEFINE_HANDLER(
    execute, Execute,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ctx<ffi::State<CallState>>().RemainingArgs().RemainingRets());

const XLA_FFI_TypeInfo* TypeInfo() {
  static const XLA_FFI_TypeInfo info = ffi::MakeTypeInfo<CallState>();
  return &info;
}

[[maybe_unused]] const StateType& state_type =
    Register(StateType{"hlo_dispatch.onednn.call", &CallState::id, TypeInfo()});

// Made at the first use, which is before this file's static objects exist.
std::map<std::string, std::pair<const Kernel*, Planner>>& Planners() {
  static auto* planners = new std::map<std::string, std::pair<const Kernel*, Planner>>();
  return *planners;
}

}  // namespace

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

void CheckBuffer(const std::string& role, const ExpectedBuffer& expected, const ffi::AnyBuffer& buffer) {
  const bool right_type = buffer.element_type() == expected.type;
  if (right_type && static_cast<int64_t>(buffer.size_bytes()) == expected.bytes) return;
  std::ostringstream message;
  message << role << ": expected " << expected.InWords() << ", got " << buffer.size_bytes() << " bytes of "
          << buffer.element_type();
  Invalid(message.str());
}

void* ScratchAddress(int64_t bytes, const ffi::AnyBuffer& buffer) {
  if (buffer.element_type() != ffi::U8 || static_cast<int64_t>(buffer.size_bytes()) < bytes) {
    std::ostringstream message;
    message << "scratch: expected at least " << bytes << " bytes of u8, got " << buffer.size_bytes() << " bytes of "
            << buffer.element_type();
    Invalid(message.str());
  }
  return buffer.untyped_data();
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
  return ffi::Ffi::BindInstantiate().Attrs().To(
      [&kernel, planner](ffi::Dictionary dictionary) -> ffi::ErrorOr<std::unique_ptr<CallState>> {
        std::unique_ptr<CallState> state;
        ffi::Error error =
            Guarded(kernel.target().c_str(), [&] { state = MakeState(kernel, planner, FfiAttributes(dictionary)); });
        if (error.failure()) return ffi::Unexpected(std::move(error));
        return state;
      });
}

XLA_FFI_Handler* Execution() { return execute; }

Answer AnswerOf(const Kernel& kernel, Planner planner, const Attributes& attributes) {
  CheckCall(kernel, attributes);
  CallPlan plan;
  Library::Get().ForPool([&] { plan = planner(attributes); });
  const bool says_how = attributes.Has("packed_bytes") || attributes.Has("packed_layout");
  if (plan.may_be_prepacked && says_how) plan.prepacked.Check(attributes, plan.implementation);
  return {plan.implementation, plan.scratch_bytes, plan.Reorders(), plan.prepacked.bytes, plan.prepacked.layout};
}

std::unique_ptr<RawCall> MakeRawCall(const Kernel& kernel, Planner planner, const Attributes& attributes,
                                     const std::vector<RawCall::OperandBuffer>& given) {
  CheckCall(kernel, attributes);
  return std::make_unique<RawPrimitive>(Standalone(planner(attributes)), given);
}

}  // namespace hlo_dispatch::onednn
