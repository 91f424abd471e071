// hlo_dispatch.onednn.sequence
//
//   member_0; member_1; …      calls of other oneDNN kernels, or of own kernels that may be members
//
// Call group: the members run in order. oneDNN's members are waited for once; own kernels wait for the members before
// them and run on the library's threads where those are oneTBB's: they are awake, and XLA's would compete with them for
// processors. A member may have an in-place sum (attribute `accumulated`). Operands: values that members read and none
// writes; the first ones are coalesced into one buffer of held_bytes where attribute `held` has their offsets. Results:
// values that are read outside, then scratch, which holds the intermediate values (call_group_plan.h).
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/failure.h"
#include "common/ffi_attributes.h"
#include "common/ffi_handler.h"
#include "common/machine_speed.h"
#include "common/operand_slices.h"
#include "common/parallel.h"
#include "common/pool_size.h"
#include "onednn/call.h"
#include "onednn/call_group_plan.h"
#include "onednn/primitive.h"

namespace hlo_dispatch::onednn {

namespace {

namespace ffi = xla::ffi;

const Kernel& TheKernel();

struct Input {
  size_t value;
  int64_t before;  // bytes in front of what is read
};

struct Step {
  std::unique_ptr<Primitive> primitive;
  std::unique_ptr<Routine> routine;  // or this
  std::vector<Input> inputs;
  size_t output;
};

Step MakeStep(CallGroupPlan::Member member) {
  std::vector<Input> inputs;
  for (size_t i = 0; i < member.inputs.size(); ++i) {
    const int64_t before = member.routine == nullptr ? member.plan.operands[i].BytesBefore() : 0;
    inputs.push_back({static_cast<size_t>(member.inputs[i]), before});
  }
  const auto output = static_cast<size_t>(member.output);
  if (member.routine != nullptr) return {nullptr, std::move(member.routine), std::move(inputs), output};
  return {std::make_unique<Primitive>(std::move(member.plan)), nullptr, std::move(inputs), output};
}

struct CallGroupState {
  static ffi::TypeId id;
  CallGroupPlan plan;  // without its members' plans: the primitives have them
  std::vector<Step> steps;
  OperandSlices slices;
  bool has_helpers = false;
};
ffi::TypeId CallGroupState::id = {};

CallGroupPlan PlanOf(const Attributes& attributes) {
  attributes.Text("library");  // each member checks which one it is
  return CallGroupPlan::Read(attributes);
}

Answer PlanCallGroup(const Attributes& attributes) {
  CheckCall(TheKernel(), attributes);
  CallGroupPlan plan;
  Library::Get().ForPool([&] { plan = PlanOf(attributes); });
  return {"sequence of " + std::to_string(plan.members.size()), plan.scratch_bytes};
}

double MinSeconds(const CallGroupPlan::Member& member) {
  if (member.routine == nullptr) return member.plan.MinSeconds();
  double bytes = 0;
  for (const BufferSpec& spec : member.routine->operands()) bytes += static_cast<double>(spec.bytes);
  for (const BufferSpec& spec : member.routine->results()) bytes += static_cast<double>(spec.bytes);
  return MachineSpeed::Get().Seconds(/*multiply_adds_done=*/0, bytes);
}

std::unique_ptr<CallGroupState> MakeCallGroup(const Attributes& attributes) {
  auto state = std::make_unique<CallGroupState>();
  state->plan = PlanOf(attributes);
  state->slices = OperandSlices(attributes);
  const int64_t planned = attributes.Integer("scratch");
  if (state->plan.scratch_bytes > planned) {
    Invalid("attribute 'scratch': planned " + std::to_string(planned) + " bytes, but " +
            std::to_string(state->plan.scratch_bytes) +
            " are needed here (was it planned on another machine or with other "
            "threads?); compile it again");
  }
  double seconds = 0;
  for (const CallGroupPlan::Member& member : state->plan.members) seconds += MinSeconds(member);
  state->has_helpers = MachineSpeed::Get().RepaysHelp(seconds);
  for (CallGroupPlan::Member& member : state->plan.members) state->steps.push_back(MakeStep(std::move(member)));
  state->plan.members.clear();
  return state;
}

// Address of each value in this execution.
std::vector<char*> Addresses(const CallGroupPlan& plan, char* scratch, const OperandBuffers& arguments,
                             ffi::RemainingRets results) {
  std::vector<char*> addresses;
  addresses.reserve(plan.values.size());
  const size_t operands = static_cast<size_t>(plan.operands), coalesced = static_cast<size_t>(plan.coalesced);
  // The first argument is the buffer of coalesced operands.
  const size_t before = coalesced > 0 ? coalesced - 1 : 0;
  char* coalesced_buffer = nullptr;
  if (coalesced > 0) {
    coalesced_buffer =
        static_cast<char*>(CheckedAddress({"held operands", ffi::U8, plan.coalesced_bytes}, arguments[0]));
  }
  for (const CallGroupPlan::Value& value : plan.values) {
    const size_t number = addresses.size();
    if (value.offset >= 0) {
      addresses.push_back((number < coalesced ? coalesced_buffer : scratch) + value.offset);
      continue;
    }
    const ffi::AnyBuffer buffer =
        number < operands ? arguments[number - before] : **results.get<ffi::AnyBuffer>(number - operands);
    addresses.push_back(static_cast<char*>(CheckedAddress(value.expected, buffer)));
  }
  return addresses;
}

void Run(const CallGroupState& state, const Parallel& parallel, ffi::RemainingArgs given, ffi::RemainingRets results) {
  const CallGroupPlan& plan = state.plan;
  const OperandBuffers arguments(state.slices, given);
  const size_t expected_results = static_cast<size_t>(plan.results) + 1;
  if (arguments.size() != static_cast<size_t>(plan.arguments()) || results.size() != expected_results) {
    std::ostringstream message;
    message << "expected " << plan.arguments() << " operands and " << expected_results << " results, got "
            << arguments.size() << " and " << results.size();
    Invalid(message.str());
  }
  char* scratch =
      static_cast<char*>(ScratchAddress(plan.scratch_bytes, **results.get<ffi::AnyBuffer>(expected_results - 1)));
  const std::vector<char*> addresses = Addresses(plan, scratch, arguments, results);
  Submission submission(plan.reorder_scratch_bytes);
  std::vector<void*> operands;
  char* members_scratch = scratch + plan.members_scratch_offset;
  const TbbThreads* tbb = Library::Get().tbb();
  const Parallel ours = tbb == nullptr ? parallel : Parallel(tbb);
  for (const Step& step : state.steps) {
    operands.clear();
    for (const Input& input : step.inputs) operands.push_back(addresses[input.value] + input.before);
    char* result = addresses[step.output];
    if (step.routine != nullptr) {
      submission.Wait();
      step.routine->Execute({{operands.begin(), operands.end()}, {result, members_scratch}}, ours);
      continue;
    }
    submission.Submit(*step.primitive, operands, result, members_scratch, parallel);
  }
  submission.Finish();
}

ffi::Error Execute(ffi::ThreadPool pool, CallGroupState* state, ffi::RemainingArgs arguments,
                   ffi::RemainingRets results) {
  return Guarded(TheKernel().target().c_str(), [&] {
    const Parallel parallel(&pool);
    parallel.Gather(Library::Get().tbb(), PoolThreads(), state->has_helpers,
                    [&] { Run(*state, parallel, arguments, results); });
  });
}

XLA_FFI_DEFINE_HANDLER(
    execute, Execute,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ctx<ffi::State<CallGroupState>>().RemainingArgs().RemainingRets());

auto Instantiate(ffi::Dictionary dictionary) {
  return Instantiated(TheKernel().target(), [&] {
    const FfiAttributes attributes(dictionary);
    CheckCall(TheKernel(), attributes);
    std::unique_ptr<CallGroupState> state;
    Library::Get().ForPool([&] { state = MakeCallGroup(attributes); });
    return state;
  });
}

XLA_FFI_DEFINE_HANDLER(instantiate, Instantiate, ffi::Ffi::BindInstantiate().Attrs());

[[maybe_unused]] const StateType& state_type = RegisterState<CallGroupState>("hlo_dispatch.onednn.sequence");

Kernel Described() {
  Kernel kernel;
  kernel.name = kOneDnnCallGroup;
  kernel.library = "oneDNN";
  kernel.plan = PlanCallGroup;
  kernel.instantiate = instantiate;
  kernel.execute = execute;
  return kernel;
}

const Kernel& registered = Register(Described());

const Kernel& TheKernel() { return registered; }

}  // namespace

}  // namespace hlo_dispatch::onednn
