// C API of the kernel registry and of registration with a host's XLA.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "c_api/error.h"
#include "common/failure.h"
#include "common/ffi.h"
#include "common/registry.h"
#include "hlo_dispatch/kernels.h"
#include "lapack/jax_calls.h"

using hlo_dispatch::Invalid;
using hlo_dispatch::Kernel;
using hlo_dispatch::StateType;
using hlo_dispatch::Unavailable;
using hlo_dispatch::host::Guarded;

namespace {

// A kernel as C sees it, and what that points to.
struct CKernel {
  explicit CKernel(const Kernel& kernel) : target(kernel.target()) {
    for (const std::string& routine : kernel.routines) routines.push_back(routine.c_str());
    routines.push_back(nullptr);
    c_kernel = {kernel.name.c_str(),      target.c_str(),
                kernel.library.c_str(),   kernel.instructions == nullptr ? "" : kernel.instructions->name,
                kernel.packed_by.c_str(), kernel.joined_by.c_str(),
                routines.data(),          kernel.raw_call == nullptr ? 0 : 1,
                kernel.instantiate,       kernel.execute,
                kernel.only_copies,       kernel.may_write_over_source};
  }

  std::string target;
  std::vector<const char*> routines;
  hlo_dispatch_kernel c_kernel;
};

const std::vector<std::unique_ptr<const CKernel>>& CKernels() {
  static const auto* all = [] {
    auto* kernels = new std::vector<std::unique_ptr<const CKernel>>();
    for (const Kernel* kernel : hlo_dispatch::Kernels()) kernels->push_back(std::make_unique<CKernel>(*kernel));
    return kernels;
  }();
  return *all;
}

const std::vector<hlo_dispatch_state_type>& Types() {
  static const auto* all = [] {
    auto* types = new std::vector<hlo_dispatch_state_type>();
    for (const StateType* type : hlo_dispatch::StateTypes()) {
      types->push_back({type->name.c_str(), type->id, type->info});
    }
    return types;
  }();
  return *all;
}

// XLA's function that tells of an error. It comes behind the one that makes them, by another name in API 0.3, where it
// knows the first four of these members only.
struct ErrorDetails {
  size_t struct_size = sizeof(ErrorDetails);
  void* extension_start = nullptr;
  XLA_FFI_Error* error = nullptr;
  const char* message = "";
  int code = 0;
};
using TellOfError = void (*)(ErrorDetails*);

void Check(const XLA_FFI_Api* api, const std::string& what, XLA_FFI_Error* error) {
  if (error == nullptr) return;
  TellOfError tell = nullptr;
  const auto* slot = reinterpret_cast<const char*>(api) + offsetof(XLA_FFI_Api, XLA_FFI_Error_Create) + sizeof(tell);
  std::memcpy(&tell, slot, sizeof(tell));
  ErrorDetails details;
  details.error = error;
  tell(&details);
  const std::string message = what + " cannot be registered: " + details.message;
  XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
  api->XLA_FFI_Error_Destroy(&destroy);
  Unavailable(message);
}

void CheckTable(const XLA_FFI_Api* api) {
  if (api == nullptr) Invalid("there is no table of XLA's FFI functions");
  const XLA_FFI_Api_Version& version = api->api_version;
  if (version.major_version == XLA_FFI_API_MAJOR && version.minor_version >= XLA_FFI_API_MINOR) return;
  Unavailable("this XLA has FFI " + std::to_string(version.major_version) + "." +
              std::to_string(version.minor_version) + "; 0.3 or a later 0.x is needed");
}

XLA_FFI_ByteSpan SpanOf(const char* text) { return {text, std::strlen(text)}; }

void Add(const XLA_FFI_Api* api, const hlo_dispatch_state_type& type) {
  XLA_FFI_Type_Register_Args given{};
  given.struct_size = XLA_FFI_Type_Register_Args_STRUCT_SIZE;
  given.name = SpanOf(type.name);
  given.type_id = type.id;
  given.type_info = type.info;
  Check(api, type.name, api->XLA_FFI_Type_Register(&given));
}

void Add(const XLA_FFI_Api* api, const char* platform, const char* target, XLA_FFI_Handler* instantiate,
         XLA_FFI_Handler* execute) {
  XLA_FFI_Handler_Register_Args given{};
  given.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  given.name = SpanOf(target);
  given.platform = SpanOf(platform);
  given.bundle.instantiate = instantiate;
  given.bundle.execute = execute;
  Check(api, target, api->XLA_FFI_Handler_Register(&given));
}

}  // namespace

size_t hlo_dispatch_kernel_count() { return CKernels().size(); }

const hlo_dispatch_kernel* hlo_dispatch_kernel_at(size_t index) {
  return index < CKernels().size() ? &CKernels()[index]->c_kernel : nullptr;
}

size_t hlo_dispatch_state_type_count() { return Types().size(); }

const hlo_dispatch_state_type* hlo_dispatch_state_type_at(size_t index) {
  return index < Types().size() ? &Types()[index] : nullptr;
}

hlo_dispatch_error* hlo_dispatch_register(const XLA_FFI_Api* api, const char* platform) {
  return Guarded([&] {
    CheckTable(api);
    // XLA wants to know the types of the handlers' states first.
    for (const hlo_dispatch_state_type& type : Types()) Add(api, type);
    for (const auto& kernel : CKernels()) {
      Add(api, platform, kernel->c_kernel.target, kernel->c_kernel.instantiate, kernel->c_kernel.execute);
    }
  });
}

hlo_dispatch_error* hlo_dispatch_register_lapack(const XLA_FFI_Api* api, const char* platform) {
  return Guarded([&] {
    CheckTable(api);
    std::string problem;
    // An XLA that has some of them keeps its own, and gets the others.
    for (const auto& [target, handler] : hlo_dispatch::lapack::JaxCalls()) {
      try {
        Add(api, platform, target.c_str(), nullptr, handler);
      } catch (const hlo_dispatch::Failure& failure) {
        if (problem.empty()) problem = failure.what();
      }
    }
    if (!problem.empty()) hlo_dispatch::Unavailable(problem);
  });
}
