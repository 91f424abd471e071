// Thread affinity: binds each thread of a vendor library to one processor.
//
// oneDNN over SYCL computes in a thread that SYCL makes for its tasks and in TBB's workers. Intel's OpenCL runtime
// below them binds the workers to a processor each, but not SYCL's thread. Where that one is woken behind a worker,
// while XLA's threads are still about on the other processors, Linux leaves it there for milliseconds, a processor
// idles, and a call that divides its work evenly takes twice as long (seen with `perf sched timehist` on two
// processors: in about one process of three for all its life). With all of them bound they cannot meet.
#ifndef HLO_DISPATCH_COMMON_BOUND_THREADS_H_
#define HLO_DISPATCH_COMMON_BOUND_THREADS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace hlo_dispatch {

// The processors that this process may use, in ascending order: those of its first thread. Other threads may be bound
// to fewer.
std::vector<int> AllowedProcessors();

// Lets the calling thread run on these processors only, and the threads that it makes from now on.
void RunOn(const std::vector<int>& processors);

// The threads of this process that have the name (at most 15 characters are compared), in the order of their making.
std::vector<pid_t> ThreadsNamed(const std::string& name);

// Lets each thread run on one of the processors only: the one it is bound to already, or else one that is left.
// Does nothing unless there are as many of both.
void BindEach(const std::vector<pid_t>& threads, const std::vector<int>& processors);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_BOUND_THREADS_H_
