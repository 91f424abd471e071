// How many devices a client has where the host does not say.
#ifndef HLO_DISPATCH_PJRT_DEVICES_H_
#define HLO_DISPATCH_PJRT_DEVICES_H_

#include "pjrt/c_interface.h"

namespace hlo_dispatch::pjrt {

// Creates a client: with one device, or as many as XLA_FLAGS asks of a CPU, as JAX's own CPU client has. Runtimes have
// four, threads for them however few processors there are, and launch the next program once all four ran the last one:
// torch_xla, which compiles a program for all devices and runs it on one, would wait for ever.
Error* CreateClientWithDevices(CreateClient* arguments);

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_DEVICES_H_
