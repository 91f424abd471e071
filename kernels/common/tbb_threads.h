// The oneTBB that a library computes with: own loops on its threads, for call-group members between that library's
// calls, and other threads instead of its workers.
#ifndef HLO_DISPATCH_COMMON_TBB_THREADS_H_
#define HLO_DISPATCH_COMMON_TBB_THREADS_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace hlo_dispatch {

class TbbArenas;

class TbbThreads {
 public:
  // Those of the oneTBB that a library has loaded, by that library's handle; null where it has none, or not this one.
  static std::unique_ptr<const TbbThreads> Of(void* library);

  // How many may work at once, the caller among them; at least 1.
  int64_t count() const;

  // As Parallel::For (parallel.h). The caller computes what no other thread has begun.
  void For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) const;

  // Calls body(). What that gives to oneTBB is done by this thread and by those that come to help, and by none of
  // oneTBB's own. What body throws is thrown again here.
  //
  // Args:
  //   threads: for how many oneTBB divides the work, whoever comes.
  //   helpers: how many may come; with none this thread does everything.
  //   call: is given what a helper does. Another thread does it, at any time, or none; this one may return from it at
  //     once.
  void Gather(int64_t threads, int64_t helpers, const std::function<void(std::function<void()>)>& call,
              const std::function<void()>& body) const;

  ~TbbThreads();

 private:
  TbbThreads();
  std::unique_ptr<TbbArenas> arenas_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_TBB_THREADS_H_
