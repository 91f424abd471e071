// Signal handler guard: restores the host process's signal handlers after a vendor library is loaded or started.
//
// Intel's OpenCL runtime includes an LLVM that replaces the handlers of fifteen signals, SIGINT, SIGTERM and SIGUSR1
// among them, when oneDNN's engine is created (nothing else of oneDNN and oneMKL was seen to change any).
#ifndef HLO_DISPATCH_COMMON_SIGNAL_HANDLER_GUARD_H_
#define HLO_DISPATCH_COMMON_SIGNAL_HANDLER_GUARD_H_

#include <signal.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace hlo_dispatch {

// A shared object in memory, or the program itself.
struct LoadedObject {
  uintptr_t begin = 0, end = 0;
  std::string name;

  bool operator==(const LoadedObject& other) const { return begin == other.begin && name == other.name; }
};

// Saves all signal actions; the destructor restores those that a library replaced.
//
// A replaced handler is one whose code is in a shared object that was loaded during the lifetime of this or an earlier
// guard. Restoring every change would undo what another thread of the host sets meanwhile (creating the engine takes up
// to 200 ms): the host's handlers are in objects that were loaded before, mostly the interpreter, or in no object at
// all (ctypes), and an ignored or default signal has no handler.
class SignalHandlerGuard {
 public:
  SignalHandlerGuard();
  ~SignalHandlerGuard();
  SignalHandlerGuard(const SignalHandlerGuard&) = delete;
  SignalHandlerGuard& operator=(const SignalHandlerGuard&) = delete;

 private:
  std::array<struct sigaction, NSIG> actions_;
  std::array<bool, NSIG> known_;
  stack_t stack_ = {};  // this thread's, for handlers
  bool stack_known_ = false;
  std::vector<LoadedObject> objects_;
};

// Blocks the host's signals in this thread and in those that it starts: a signal to the process is for the host's
// threads, which may wait for it. Synchronous signals (SIGSEGV and others) are not blocked.
void BlockHostSignals();

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SIGNAL_HANDLER_GUARD_H_
