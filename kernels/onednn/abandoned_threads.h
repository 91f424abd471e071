// The library's threads after a fork: they stay in the parent.
//
// In the child there is everything that oneDNN had in memory, so it can be asked what it would do, but nobody who does
// it: waiting for a call would never end, nor would the end of the process, where SYCL waits for its threads.
#ifndef HLO_DISPATCH_ONEDNN_ABANDONED_THREADS_H_
#define HLO_DISPATCH_ONEDNN_ABANDONED_THREADS_H_

namespace hlo_dispatch::onednn {

// To be called before the library starts threads, and once more when it has. A child that is forked in between or
// later has lost them; when it ends, what was registered for the end before the second call is left out.
void ThreadsStarting();
void ThreadsStarted();

// Whether this process was forked from the one that the threads are in.
bool ThreadsLost();

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_ABANDONED_THREADS_H_
