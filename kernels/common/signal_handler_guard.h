// The host's signal handlers, kept while a vendor library is loaded or started.
//
// Intel's OpenCL runtime brings an LLVM along that takes over the handlers of fifteen signals, SIGINT, SIGTERM and
// SIGUSR1 among them, when oneDNN's engine is created (nothing else of oneDNN and oneMKL was seen to change any).
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

// Remembers what is done at each signal; when it goes, puts back what a library has taken over.
//
// That is a handler whose code lies in an object which came into memory during the life of this or an earlier one of
// its kind. To put back whatever changed would undo what another thread of the host sets meanwhile (creating the
// engine takes up to 200 ms): its handlers lie in objects that were there before, in the interpreter mostly, or in
// no object at all (ctypes makes such), and a signal that is ignored or has its default again has no handler.
class SignalActions {
 public:
  SignalActions();
  ~SignalActions();
  SignalActions(const SignalActions&) = delete;
  SignalActions& operator=(const SignalActions&) = delete;

 private:
  std::array<struct sigaction, NSIG> actions_;
  std::array<bool, NSIG> known_;
  stack_t stack_ = {};  // this thread's, for handlers
  bool stack_known_ = false;
  std::vector<LoadedObject> objects_;
};

// Lets no handler of the host run in this thread and in those that it starts: a signal to the process is for its own
// threads, which may be waiting for it. What a thread's own instruction raises is not held back.
void LeaveSignalsToOthers();

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SIGNAL_HANDLER_GUARD_H_
