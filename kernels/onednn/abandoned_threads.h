// Abandoned threads: the library's threads stay in the parent process after a fork.
//
// The child has oneDNN's memory, so it can plan calls, but no thread executes them: waiting for a call would never end,
// nor would process exit, where SYCL waits for its threads.
#ifndef HLO_DISPATCH_ONEDNN_ABANDONED_THREADS_H_
#define HLO_DISPATCH_ONEDNN_ABANDONED_THREADS_H_

namespace hlo_dispatch::onednn {

// Call the first one before the library starts threads and the second one afterwards. In a child that is forked in
// between or later the threads are abandoned; when it exits, exit handlers registered before the second call are
// skipped.
void ThreadsStarting();
void ThreadsStarted();

// Whether this process was forked after the threads were started.
bool ThreadsAbandoned();

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_ABANDONED_THREADS_H_
