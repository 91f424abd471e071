// Users' own kernels: XLA FFI handlers in shared libraries that a user's table names.
#ifndef HLO_DISPATCH_PJRT_USERS_KERNELS_H_
#define HLO_DISPATCH_PJRT_USERS_KERNELS_H_

#include <string>

namespace hlo_dispatch::pjrt {

struct UsersKernel {
  std::string target, symbol, path;
};

// Loads a kernel's library and registers its handler with the runtime, once in a process; throws a sentence.
void Add(const UsersKernel& kernel);

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_USERS_KERNELS_H_
