// Kernel support queries, answered asynchronously. oneDNN takes up to 5 ms to choose an implementation for one shape; a
// compilation makes dozens of queries, and prefetches them.
#ifndef HLO_DISPATCH_COMMON_SUPPORT_QUERY_H_
#define HLO_DISPATCH_COMMON_SUPPORT_QUERY_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/attributes.h"
#include "common/registry.h"

namespace hlo_dispatch {

// Answers queries in worker threads, in order. The threads end when there are no more queries, so that none runs at
// process exit (see Finish). A fork waits until no query is in progress, so that the library holds no lock in the
// child.
class SupportQueries {
 public:
  static SupportQueries& Get();

  // Returns the query's number.
  int64_t Ask(AnswerMaker plan, std::unique_ptr<const Attributes> attributes);
  // Waits for the answer, or throws what answering threw. Each number serves once.
  Answer Wait(int64_t number);
  // Drops waiting queries and returns once no thread is left.
  void Finish();

 private:
  SupportQueries() = default;
  // Those of this process.
  static SupportQueries*& Instance();
  // Around a fork, in the thread that forks.
  void Pause();
  void Resume();
  // State for a child process: the lock, the condition and the threads are the parent's.
  static void StartAnew();

  void StartThread();
  void Work();
  // Runs the first waiting query, if any, without the lock, but not during a fork.
  void RunNext(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Answer()>> waiting_;
  std::map<int64_t, std::future<Answer>> answers_;
  int64_t last_number_ = 0;
  int threads_ = 0;
  int active_ = 0;  // queries in progress
  bool paused_ = false;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SUPPORT_QUERY_H_
