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
#include "lapack/families.h"
#include "onemkl/families.h"

namespace hlo_dispatch {

namespace {

namespace ffi = xla::ffi;

struct RoutineState {
  static ffi::TypeId id;
  const char* target;
  std::unique_ptr<Routine> routine;
};
ffi::TypeId RoutineState::id = {};

void CheckCount(const char* what, size_t expected, size_t got) {
  if (expected == got) return;
  throw Failure(FailureKind::kInvalid,
                "expected " + std::to_string(expected) + " " + what + ", got " + std::to_string(got));
}

// The buffer's address, once it is known to hold what the attributes say and nothing else; the shape may differ, as
// bitcasts are free.
void* Address(const BufferSpec& spec, const ffi::AnyBuffer& buffer) {
  if (buffer.element_type() != spec.type || static_cast<int64_t>(buffer.size_bytes()) != spec.bytes) {
    std::ostringstream message;
    message << spec.role << ": expected " << spec.bytes << " bytes of " << spec.type << ", got " << buffer.size_bytes()
            << " bytes of " << buffer.element_type();
    throw Failure(FailureKind::kInvalid, message.str());
  }
  return buffer.untyped_data();
}

ffi::Error Execute(ffi::ThreadPool pool, RoutineState* state, ffi::RemainingArgs arguments,
                   ffi::RemainingRets results) {
  return Guarded(state->target, [&] {
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
    // Of matrices that have no elements attributes may tell any number.
    const bool writes = std::any_of(routine.results().begin(), routine.results().end(),
                                    [](const BufferSpec& result) { return result.bytes > 0; });
    if (!writes) return;
    routine.Execute(buffers, Parallel(&pool));
  });
}

template <RoutineMaker make, const char* target>
ffi::ErrorOr<std::unique_ptr<RoutineState>> Instantiate(ffi::Dictionary dictionary) {
  std::unique_ptr<RoutineState> state;
  ffi::Error error = Guarded(target, [&] { state.reset(new RoutineState{target, make(FfiAttributes(dictionary))}); });
  if (error.failure()) return ffi::Unexpected(std::move(error));
  return state;
}

XLA_FFI_DEFINE_HANDLER(
    execute_routine, Execute,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ctx<ffi::State<RoutineState>>().RemainingArgs().RemainingRets());

// target_<library>_<name> and instantiate_<library>_<name> for each family.
#define HLO_DISPATCH_HANDLER(library, name, maker)                                                        \
  constexpr char target_##library##_##name[] = "hlo_dispatch." #library "." #name;                        \
  XLA_FFI_DEFINE_HANDLER(instantiate_##library##_##name, (Instantiate<maker, target_##library##_##name>), \
                         ffi::Ffi::BindInstantiate().Attrs());
HLO_DISPATCH_LAPACK_FAMILIES(HLO_DISPATCH_HANDLER)
HLO_DISPATCH_ONEMKL_FAMILIES(HLO_DISPATCH_HANDLER)
#undef HLO_DISPATCH_HANDLER

}  // namespace

const std::vector<RoutineFamily>& RoutineFamilies() {
#define HLO_DISPATCH_FAMILY(library, name, maker) \
  {target_##library##_##name, maker, instantiate_##library##_##name, execute_routine},
  static const auto* families = new std::vector<RoutineFamily>{HLO_DISPATCH_LAPACK_FAMILIES(HLO_DISPATCH_FAMILY)
                                                                   HLO_DISPATCH_ONEMKL_FAMILIES(HLO_DISPATCH_FAMILY)};
#undef HLO_DISPATCH_FAMILY
  return *families;
}

XLA_FFI_TypeId* RoutineStateTypeId() { return &RoutineState::id; }

const XLA_FFI_TypeInfo* RoutineStateTypeInfo() {
  static const XLA_FFI_TypeInfo info = ffi::MakeTypeInfo<RoutineState>();
  return &info;
}

}  // namespace hlo_dispatch
