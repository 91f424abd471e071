// oneTBB arenas that XLA's threads work in, instead of oneTBB's workers.
//
// A library that computes with oneTBB under XLA has a process with twice as many threads as processors: XLA's, and
// oneTBB's workers. While XLA runs independent instructions at the same time, or its threads still look for work, a
// worker that has taken its half of a product waits for a processor, and whoever waits for that half with it. In an
// arena in which all places are for callers no worker takes part: XLA's own threads come in, as many as are free.
#ifndef HLO_DISPATCH_COMMON_TBB_ARENAS_H_
#define HLO_DISPATCH_COMMON_TBB_ARENAS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace hlo_dispatch {

class TbbArenas {
 public:
  // As TbbThreads::Gather; oneTBB divides the work as for so many `threads`.
  void Run(int64_t threads, int64_t helpers, const std::function<void(std::function<void()>)>& call,
           const std::function<void()>& body);

 private:
  struct ArenaSlot;
  struct Participants;
  std::shared_ptr<ArenaSlot> Acquire(int64_t threads);
  // Whether a helper is within.
  static bool IsEntered(ArenaSlot& slot);

  std::mutex mutex_;
  // An arena serves one call at a time, and some hundreds before it is replaced.
  std::vector<std::shared_ptr<ArenaSlot>> idle_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_TBB_ARENAS_H_
