#include "common/routine.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "common/failure.h"
#include "common/ffi_attributes.h"
#include "common/ffi_failure.h"

namespace hlo_dispatch {

namespace {

namespace ffi = xla::ffi;

struct RoutineState {
  static ffi::TypeId id;
  std::string target;
  std::unique_ptr<Routine> routine;
};
ffi::TypeId RoutineState::id = {};

void CheckCount(const char* what, size_t expected, size_t got) {
  if (expected == got) return;
  Invalid("expected " + std::to_string(expected) + " " + what + ", got " + std::to_string(got));
}

// The buffer's address, once it is known to hold what the attributes say and nothing else; the shape may differ, as
// bitcasts are free.
void* Address(const BufferSpec& spec, const ffi::AnyBuffer& buffer) {
  if (buffer.element_type() != spec.type || static_cast<int64_t>(buffer.size_bytes()) != spec.bytes) {
    std::ostringstream message;
    message << spec.role << ": expected " << spec.bytes << " bytes of " << spec.type << ", got " << buffer.size_bytes()
            << " bytes of " << buffer.element_type();
    Invalid(message.str());
  }
  return buffer.untyped_data();
}

ffi::Error Execute(ffi::ThreadPool pool, RoutineState* state, ffi::RemainingArgs arguments,
                   ffi::RemainingRets results) {
  return Guarded(state->target.c_str(), [&] {
    const Routine& routine = *state->routine;
    CheckCount("operands", routine.operands().size(), arguments.size());
    CheckCount("results", routine.results().size(), results.size());
    RoutineBuffers buffers;
    for (size_t i = 0; i < arguments.size(); ++i) {
      buffers.operands.push_back(Address(routine.operands()[i], *arguments.get<ffi::AnyBuffer>(i)));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      buffers.results.push_back(Address(routine.results()[i], **results.get<ffi::AnyBuffer>(i)));
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

const XLA_FFI_TypeInfo* TypeInfo() {
  static const XLA_FFI_TypeInfo info = ffi::MakeTypeInfo<RoutineState>();
  return &info;
}

[[maybe_unused]] const StateType& state_type =
    Register(StateType{"hlo_dispatch.routine", &RoutineState::id, TypeInfo()});

}  // namespace

BufferSpec SpecOf(const StridedArray& array) {
  const auto type = array.type == ElementType::kF32    ? ffi::F32
                    : array.type == ElementType::kBF16 ? ffi::BF16
                                                       : ffi::F16;
  return {array.role, type, array.BufferBytes()};
}

BufferSpec PlannedScratch(const Attributes& attributes) {
  const int64_t bytes = attributes.Integer("scratch");
  if (bytes >= 0) return {"scratch", ffi::U8, bytes};
  Invalid("attribute 'scratch': expected at least 0, got " + std::to_string(bytes));
}

std::unique_ptr<ffi::Ffi> RoutineInstantiation(const Kernel& kernel, RoutineMaker make) {
  return ffi::Ffi::BindInstantiate().Attrs().To(
      [&kernel, make](ffi::Dictionary dictionary) -> ffi::ErrorOr<std::unique_ptr<RoutineState>> {
        std::unique_ptr<RoutineState> state;
        const std::string target = kernel.target();
        ffi::Error error = Guarded(target.c_str(), [&] {
          const FfiAttributes attributes(dictionary);
          CheckCall(kernel, attributes);
          state.reset(new RoutineState{target, make(attributes)});
          const Routine& routine = *state->routine;
          if (routine.prepacked() != nullptr) routine.prepacked()->Check(attributes, routine.implementation());
        });
        if (error.failure()) return ffi::Unexpected(std::move(error));
        return state;
      });
}

XLA_FFI_Handler* RoutineExecution() { return execute_routine; }

Answer AnswerOfRoutine(const Kernel& kernel, RoutineMaker make, const Attributes& attributes) {
  CheckCall(kernel, attributes);
  const std::unique_ptr<Routine> routine = make(attributes);
  const PrepackedWeights* prepacked = routine->prepacked();
  if (prepacked == nullptr) return {routine->implementation(), /*scratch_bytes=*/0, /*reorders=*/false};
  const bool says_how = attributes.Has("packed_bytes") || attributes.Has("packed_layout");
  if (says_how) prepacked->Check(attributes, routine->implementation());
  return {routine->implementation(), /*scratch_bytes=*/0, /*reorders=*/false, prepacked->bytes, prepacked->layout};
}

}  // namespace hlo_dispatch
