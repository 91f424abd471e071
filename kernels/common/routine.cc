#include "common/routine.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "common/failure.h"
#include "common/ffi_attributes.h"
#include "common/ffi_handler.h"
#include "common/operand_slices.h"

namespace hlo_dispatch {

namespace {

namespace ffi = xla::ffi;

struct RoutineState {
  static ffi::TypeId id;
  std::string target;
  std::unique_ptr<Routine> routine;
  OperandSlices slices;
};
ffi::TypeId RoutineState::id = {};

void CheckCount(const char* what, size_t expected, size_t got) {
  if (expected == got) return;
  Invalid("expected " + std::to_string(expected) + " " + what + ", got " + std::to_string(got));
}

ffi::Error Execute(ffi::ThreadPool pool, RoutineState* state, ffi::RemainingArgs arguments,
                   ffi::RemainingRets results) {
  return Guarded(state->target.c_str(), [&] {
    const Routine& routine = *state->routine;
    const OperandBuffers operands(state->slices, arguments);
    CheckCount("operands", routine.operands().size(), operands.size());
    CheckCount("results", routine.results().size(), results.size());
    RoutineBuffers buffers;
    for (size_t i = 0; i < operands.size(); ++i) {
      buffers.operands.push_back(CheckedAddress(routine.operands()[i], operands[i]));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      buffers.results.push_back(CheckedAddress(routine.results()[i], **results.get<ffi::AnyBuffer>(i)));
    }
    // Matrices without elements may have any attributes.
    const bool writes = std::any_of(routine.results().begin(), routine.results().end(),
                                    [](const BufferSpec& result) { return result.bytes > 0; });
    if (!writes) return;
    routine.Execute(buffers, Parallel(&pool));
  });
}

XLA_FFI_DEFINE_HANDLER(
    execute_routine, Execute,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ctx<ffi::State<RoutineState>>().RemainingArgs().RemainingRets());

[[maybe_unused]] const StateType& state_type = RegisterState<RoutineState>("hlo_dispatch.routine");

}  // namespace

std::unique_ptr<ffi::Ffi> RoutineInstantiation(const Kernel& kernel, RoutineMaker make) {
  return ffi::Ffi::BindInstantiate().Attrs().To([&kernel, make](ffi::Dictionary dictionary) {
    return Instantiated(kernel.target(), [&] {
      const FfiAttributes attributes(dictionary);
      CheckCall(kernel, attributes);
      std::unique_ptr<RoutineState> state(
          new RoutineState{kernel.target(), make(attributes), OperandSlices(attributes)});
      const Routine& routine = *state->routine;
      if (routine.prepacked() != nullptr) routine.prepacked()->Check(attributes, routine.implementation());
      return state;
    });
  });
}

XLA_FFI_Handler* RoutineExecution() { return execute_routine; }

Answer AnswerOfRoutine(const Kernel& kernel, RoutineMaker make, const Attributes& attributes) {
  CheckCall(kernel, attributes);
  const std::unique_ptr<Routine> routine = make(attributes);
  const PrepackedWeights* prepacked = routine->prepacked();
  if (prepacked == nullptr) return {routine->implementation(), /*scratch_bytes=*/0, /*reorders=*/false};
  prepacked->CheckIfDescribed(attributes, routine->implementation());
  return {routine->implementation(), /*scratch_bytes=*/0, /*reorders=*/false, prepacked->bytes, prepacked->layout};
}

}  // namespace hlo_dispatch
