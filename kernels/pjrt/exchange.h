// Program exchange: compiles the host's program on the runtime, has the optimized module rewritten, and gives the host
// the executable of that one instead. Whatever fails, the host gets the first one.
#ifndef HLO_DISPATCH_PJRT_EXCHANGE_H_
#define HLO_DISPATCH_PJRT_EXCHANGE_H_

#include "pjrt/c_interface.h"

namespace hlo_dispatch::pjrt {

// Whether HLO_DISPATCH or HLO_DISPATCH_POLICY says that nothing is dispatched.
bool IsOff();

// Registers our kernels with the runtime, once. Where that fails nothing is dispatched.
void PrepareRuntime();

Error* CompileForClient(ClientCompile* arguments);
Error* CompileForTopology(Compile* arguments);

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_EXCHANGE_H_
