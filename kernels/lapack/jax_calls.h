// Handlers of the LAPACK calls that JAX writes.
#ifndef HLO_DISPATCH_LAPACK_JAX_CALLS_H_
#define HLO_DISPATCH_LAPACK_JAX_CALLS_H_

#include <string>
#include <utility>
#include <vector>

#include "common/ffi.h"

namespace hlo_dispatch::lapack {

// Target and handler of each, of which there is one for each element type.
std::vector<std::pair<std::string, XLA_FFI_Handler*>> JaxCalls();

}  // namespace hlo_dispatch::lapack

#endif  // HLO_DISPATCH_LAPACK_JAX_CALLS_H_
