// The runtime: an XLA:CPU behind PJRT's C interface, in a shared library of its own, which the plugin hands everything
// on to.
#ifndef HLO_DISPATCH_PJRT_RUNTIME_H_
#define HLO_DISPATCH_PJRT_RUNTIME_H_

#include <string>
#include <string_view>

#include "pjrt/c_interface.h"

namespace hlo_dispatch::pjrt {

class Runtime {
 public:
  // The process's, which is looked for and loaded at the first call.
  static const Runtime& Get();

  // Why there is none; empty: there is one.
  const std::string& problem() const { return problem_; }
  const std::string& path() const { return path_; }
  const Api* api() const { return api_; }
  // Names this build of it, in as few letters as will do.
  std::string Identity() const;

  // Whether its table reaches so far.
  bool Has(size_t place) const;
  // Calls a function of its table.
  template <typename Struct>
  Error* Call(Place place, Struct* arguments) const {
    return api_->functions[place](reinterpret_cast<Arguments*>(arguments));
  }
  // The message of an error of the runtime, which is freed.
  std::string Taken(Error* error) const;

  // Registers our kernels and JAX's LAPACK calls; why that failed, or nothing.
  std::string RegisterKernels() const;
  // Registers a handler of one stage under a target; likewise.
  std::string RegisterOne(std::string_view target, void* handler) const;

 private:
  Runtime();
  std::string Open();

  std::string path_, problem_;
  const Api* api_ = nullptr;
};

// The path of this very library.
std::string OwnPath();

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_RUNTIME_H_
