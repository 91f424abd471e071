// Scheduling on a thread pool that may run a task in the thread that schedules it: Eigen's pool does so where a queue
// is full, and a host's pool may always do so.
#ifndef HLO_DISPATCH_COMMON_SCHEDULING_H_
#define HLO_DISPATCH_COMMON_SCHEDULING_H_

namespace hlo_dispatch {

// Alive while the calling thread schedules tasks. A task that runs meanwhile in the same thread holds up the call that
// schedules: it may compute, but it waits for no call, neither for this one nor for one that another thread schedules
// for, which may be held up by a task that waits for this one.
class Scheduling {
 public:
  Scheduling() { ++depth_; }
  ~Scheduling() { --depth_; }
  Scheduling(const Scheduling&) = delete;
  Scheduling& operator=(const Scheduling&) = delete;

  static bool InThisThread() { return depth_ > 0; }

 private:
  inline static thread_local int depth_ = 0;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SCHEDULING_H_
