// Loops on oneTBB's threads, for what runs between calls of a library that computes on them: those threads are awake
// then, and would stand in the way of others.
//
// No header of oneTBB's is needed. What is declared here is what its headers compile into every program: libtbb.so.12
// keeps it as it is for all of them.
#ifndef HLO_DISPATCH_COMMON_TBB_THREADS_H_
#define HLO_DISPATCH_COMMON_TBB_THREADS_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace hlo_dispatch {

class TbbThreads {
 public:
  // Those of the oneTBB that a library has loaded, by that library's handle; null where it has none, or not this one.
  static std::unique_ptr<const TbbThreads> Of(void* library);

  // How many may work at once, the caller among them; at least 1.
  int64_t count() const;

  // As Parallel::For (parallel.h). The caller computes what no other thread has begun.
  void For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) const;

 private:
  struct Functions;
  TbbThreads() = default;
  std::shared_ptr<const Functions> functions_;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_TBB_THREADS_H_
