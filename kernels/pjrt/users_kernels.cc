#include "pjrt/users_kernels.h"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>

#include "pjrt/runtime.h"

namespace hlo_dispatch::pjrt {

void Add(const UsersKernel& kernel) {
  static std::mutex mutex;
  static auto* added = new std::map<std::string, std::string>();  // target to symbol and path
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string what = kernel.symbol + " of " + kernel.path;
  const auto known = added->find(kernel.target);
  if (known != added->end()) {
    if (known->second == what) return;
    throw "the kernel " + kernel.target + " is " + known->second + " already in this process, and cannot be " + what;
  }
  void* library = dlopen(kernel.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw kernel.path + " cannot be loaded: " + dlerror();
  void* handler = dlsym(library, kernel.symbol.c_str());
  if (handler == nullptr) throw kernel.path + " has no symbol " + kernel.symbol;
  const std::string problem = Runtime::Get().RegisterOne(kernel.target, handler);
  if (!problem.empty()) throw "the kernel " + kernel.target + " cannot be registered: " + problem;
  (*added)[kernel.target] = what;
}

}  // namespace hlo_dispatch::pjrt

// Adds a user's kernel. Why that failed, to be kept; empty: it did not.
extern "C" __attribute__((visibility("default"))) const char* hlo_dispatch_pjrt_add_kernel(const char* target,
                                                                                           const char* symbol,
                                                                                           const char* path) {
  try {
    hlo_dispatch::pjrt::Add({target, symbol, path});
    return "";
  } catch (const std::string& sentence) {
    return strdup(sentence.c_str());
  }
}
