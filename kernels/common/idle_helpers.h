// Idle helpers: threads of a pool that have finished a task of ours and wait for another one for a few microseconds,
// spinning.
//
// Own calls follow each other closely, as the products of a token do, and each of them is short. A pool's thread that
// has gone to sleep in between comes when half of the next call is over. Whether to wait is learned: helpers that were
// not asked again stop waiting, but for one in some dozens.
#ifndef HLO_DISPATCH_COMMON_IDLE_HELPERS_H_
#define HLO_DISPATCH_COMMON_IDLE_HELPERS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace hlo_dispatch {

// Spins until `is_done` or until then; whether it is done.
template <typename Predicate>
bool SpinUntil(const Predicate& is_done, std::chrono::steady_clock::time_point end) {
  constexpr int kPausesPerLook = 16;
  while (!is_done()) {
    for (int i = 0; i < kPausesPerLook; ++i) __builtin_ia32_pause();
    if (std::chrono::steady_clock::now() >= end) return is_done();
  }
  return true;
}

class IdleHelpers {
 public:
  // Those of pools with so many threads: XLA's interface names no pool.
  static IdleHelpers& Of(int64_t threads);

  // Gives a task to as many idle helpers, at most; how many have it.
  int64_t Give(int64_t count, const std::function<void()>& task);

  // In a thread of the pool that has finished a task: does what it is given until nothing comes for a while, or until
  // other tasks of the pool may have waited for this thread for long.
  void Wait();

 private:
  // With the mutex held.
  bool IsWorthWaiting();

  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<int64_t> given_{0};  // tasks that no helper has taken yet
  int64_t idle_ = 0;               // helpers, at least as many as tasks
  int64_t score_ = 1;              // how many more were asked again than not, within bounds
  int64_t left_out_ = 0;           // how often nobody has waited since somebody did
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_IDLE_HELPERS_H_
