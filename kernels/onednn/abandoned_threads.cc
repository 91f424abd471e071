#include "onednn/abandoned_threads.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace hlo_dispatch::onednn {

namespace {

enum class State { kNone, kRunning, kAbandoned };
std::atomic<State> state{State::kNone};
std::once_flag fork_handler_once, exit_handler_once;

// Exit handlers run in the reverse order of their registration: this one before SYCL's.
void ExitImmediately(int status, void*) {
  if (!ThreadsAbandoned()) return;
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

void ThreadsStarting() {
  std::call_once(fork_handler_once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      if (state.load() == State::kRunning) state.store(State::kAbandoned);
    });
  });
  state.store(State::kRunning);
}

void ThreadsStarted() {
  std::call_once(exit_handler_once, [] { on_exit(ExitImmediately, nullptr); });
}

bool ThreadsAbandoned() { return state.load(std::memory_order_relaxed) == State::kAbandoned; }

}  // namespace hlo_dispatch::onednn
