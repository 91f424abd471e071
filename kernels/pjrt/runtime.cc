#include "pjrt/runtime.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "common/ffi.h"
#include "hlo_dispatch/kernels.h"

namespace hlo_dispatch::pjrt {

namespace {

constexpr char kVariable[] = "HLO_DISPATCH_PJRT_RUNTIME";
// Packages of PyPI whose library is an XLA:CPU behind PJRT, as they lie in an environment.
constexpr const char* kPackages[] = {"fastatomstruct_xla_cpu/libpjrt_cpu.so",
                                     "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"};

std::string Resolved(const std::string& path) {
  char whole[PATH_MAX];
  return realpath(path.c_str(), whole) == nullptr ? "" : whole;
}

// The runtime's file; throws a sentence where there is none.
std::string FoundRuntime() {
  const char* named = secure_getenv(kVariable);
  if (named != nullptr && *named != '\0') {
    const std::string path = Resolved(named);
    if (*named != '/' || path.empty())
      throw std::string(kVariable) + " names " + named + ", which is no absolute path of a file";
    if (path == Resolved(OwnPath()))
      throw std::string(kVariable) + " names this plugin itself, which needs an XLA:CPU to hand programs on to";
    return path;
  }
  const std::string own = OwnPath();
  const std::string packages = own.substr(0, own.rfind('/')) + "/../";
  for (const char* package : kPackages) {
    const std::string path = Resolved(packages + package);
    if (!path.empty()) return path;
  }
  throw std::string(
      "hlo-dispatch's PJRT plugin needs an XLA:CPU that it hands programs on to: `pip install fastatomstruct-xla-cpu` "
      "into the "
      "environment of the plugin, or name another plugin's file in ") +
      kVariable;
}

constexpr char kPlatform[] = "Host";

// XLA's table of FFI functions, which every handler is given as soon as it is registered.
const XLA_FFI_Api* ffi_table = nullptr;

XLA_FFI_Error* TableReceiver(XLA_FFI_CallFrame* frame) {
  if (frame->api != nullptr) ffi_table = frame->api;
  for (auto* extension = frame->extension_start; extension != nullptr; extension = extension->next) {
    if (extension->type != XLA_FFI_Extension_Metadata) continue;
    auto* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  }
  return nullptr;
}

}  // namespace

std::string OwnPath() {
  Dl_info found;
  if (dladdr(reinterpret_cast<void*>(&TableReceiver), &found) == 0) return "";
  const std::string resolved = Resolved(found.dli_fname);
  return resolved.empty() ? found.dli_fname : resolved;
}

const Runtime& Runtime::Get() {
  static const auto* runtime = new Runtime();
  return *runtime;
}

Runtime::Runtime() {
  try {
    path_ = FoundRuntime();
    problem_ = Open();
  } catch (const std::string& problem) {
    problem_ = problem;
  }
}

std::string Runtime::Open() {
  void* handle = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return path_ + " cannot be loaded: " + dlerror();
  const auto get = reinterpret_cast<const Api* (*)()>(dlsym(handle, "GetPjrtApi"));
  const Api* api = get == nullptr ? nullptr : get();
  if (api == nullptr) return path_ + " is no PJRT plugin: it has no GetPjrtApi";
  if (api->version.major != kMajorVersion) {
    return path_ + " has PJRT " + std::to_string(api->version.major) + "." + std::to_string(api->version.minor) +
           "; this plugin hands on version " + std::to_string(kMajorVersion);
  }
  api_ = api;
  return "";
}

bool Runtime::Has(size_t place) const {
  return kTableStart + (place + 1) * sizeof(Function) <= api_->struct_size && api_->functions[place] != nullptr;
}

std::string Runtime::Identity() const {
  static const std::string* identity = [this] {
    // Its bytes are hundreds of megabytes; a build differs in size, or in its symbols and strings at the end.
    struct stat file{};
    if (stat(path_.c_str(), &file) != 0) return new std::string("unknown");
    constexpr off_t kTail = 1 << 20;
    std::ifstream bytes(path_, std::ios::binary);
    bytes.seekg(file.st_size > kTail ? file.st_size - kTail : 0);
    std::vector<char> tail(kTail);
    bytes.read(tail.data(), kTail);
    uint64_t hash = 0xcbf29ce484222325;
    for (std::streamsize i = 0; i < bytes.gcount(); ++i)
      hash = (hash ^ static_cast<unsigned char>(tail[i])) * 0x100000001b3;
    char text[64];
    std::snprintf(text, sizeof(text), "%zx-%016llx", static_cast<size_t>(file.st_size),
                  static_cast<unsigned long long>(hash));
    return new std::string(text);
  }();
  return *identity;
}

std::string Runtime::Taken(Error* error) const {
  Widest<ErrorMessage> message;
  message.error = error;
  Call(kErrorMessage, &message);
  std::string text(message.message, message.message_size);
  Widest<ErrorDestroy> destroy;
  destroy.error = error;
  Call(kErrorDestroy, &destroy);
  return text;
}

std::string Runtime::RegisterOne(std::string_view target, void* handler) const {
  const Extension* extension = api_->extensions;
  while (extension != nullptr && extension->type != kFfiExtension) extension = extension->next;
  if (extension == nullptr) return "the runtime takes no custom calls: it has no FFI extension";
  Widest<RegisterHandler> given;
  given.target = target.data();
  given.target_size = target.size();
  given.handler = handler;
  given.platform = kPlatform;
  given.platform_size = sizeof(kPlatform) - 1;
  Error* error = reinterpret_cast<const FfiExtension*>(extension)->register_handler(&given);
  return error == nullptr ? "" : Taken(error);
}

std::string Runtime::RegisterKernels() const {
  std::string problem = RegisterOne("hlo_dispatch.pjrt.table_receiver", reinterpret_cast<void*>(&TableReceiver));
  if (!problem.empty()) return problem;
  if (ffi_table == nullptr) return "the runtime does not show its FFI functions to a handler";
  // A runtime that has LAPACK itself keeps its own.
  hlo_dispatch_error_free(hlo_dispatch_register_lapack(ffi_table, kPlatform));
  hlo_dispatch_error* failed = hlo_dispatch_register(ffi_table, kPlatform);
  if (failed == nullptr) return "";
  const std::string message = hlo_dispatch_error_message(failed);
  hlo_dispatch_error_free(failed);
  return message;
}

}  // namespace hlo_dispatch::pjrt
