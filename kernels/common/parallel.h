// Parallel loops over independent pieces of work, on XLA's thread pool or on the threads of the library that computed
// just before; there is no other pool.
#ifndef HLO_DISPATCH_COMMON_PARALLEL_H_
#define HLO_DISPATCH_COMMON_PARALLEL_H_

#include <cstdint>
#include <functional>

#include "common/ffi.h"
#include "common/tbb_threads.h"

namespace hlo_dispatch {

class Parallel {
 public:
  // On the calling thread alone.
  Parallel() = default;
  explicit Parallel(xla::ffi::ThreadPool* pool) : pool_(pool) {}
  explicit Parallel(const TbbThreads* tbb) : tbb_(tbb) {}

  // How many threads there are; at least 1.
  int64_t threads() const;

  // How many of them so much work is worth waking for, each with at least `min_per_thread`.
  int64_t ThreadsFor(double work, double min_per_thread) const;

  // Calls body(begin, end) for pieces of [0, count) of at most `grain`, on this thread and those
  // that are free; returns when all are done. What a piece throws is thrown again here. This thread never waits for
  // work that no thread has begun, so it may itself be one of the pool's.
  void For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) const;

  // Calls body(), which calls a library: what that gives to oneTBB these threads do, as many as are free.
  //
  // Args:
  //   tbb: the library's; null where it computes with something else, on which this has no influence.
  //   division: for how many threads the work is divided, which the library was told when it planned the call.
  //   has_helpers: whether other threads than this one are asked to come; without them nothing is divided.
  void Gather(const TbbThreads* tbb, int64_t division, bool has_helpers, const std::function<void()>& body) const;

 private:
  // Schedules up to so many tasks, each of which calls `task`: no more than leaves the pool with tasks to begin that it
  // has threads for, over all calls. What it throws was not scheduled.
  void Schedule(int64_t count, const std::function<void()>& task) const;

  xla::ffi::ThreadPool* pool_ = nullptr;
  const TbbThreads* tbb_ = nullptr;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_PARALLEL_H_
