// Engine creation, in a separate thread whose name all threads of the library inherit.
#ifndef HLO_DISPATCH_ONEDNN_ENGINE_H_
#define HLO_DISPATCH_ONEDNN_ENGINE_H_

#include "onednn/api.h"

namespace hlo_dispatch::onednn {

class Library;

// What threads of oneDNN are called in debuggers and profilers.
inline constexpr char kThreadName[] = "onednn";

// Creates the CPU engine, or takes the native one. Where the library computes with TBB, or its threads shall be bound,
// also runs a product large enough for all of its threads, so that they exist and can be found by name. Throws what the
// library throws. The host keeps its signal handlers and its environment (common/signal_handler_guard.h,
// scoped_environment_variable.h).
Status MakeEngine(const Library& library, Engine** engine);

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_ENGINE_H_
