// Questions to a library that are answered ahead of time. oneDNN takes up to 5 ms to choose an implementation for one
// shape; a compilation asks dozens of times, and has other things to do meanwhile.
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

// Answers questions in threads of their own, first come first served. The threads end when there are no more
// questions, so that none runs while the process ends (see Finish). A fork waits until no question is being worked on:
// in the child they are all answered or still to be answered, and the library holds no lock.
class Inquiries {
 public:
  static Inquiries& Get();

  // Returns the question's number.
  int64_t Ask(AnswerMaker plan, std::unique_ptr<const Attributes> attributes);
  // Waits for the answer, or throws what answering threw. Each number serves once.
  Answer Wait(int64_t number);
  // Drops what is still waiting and returns once no thread is left.
  void Finish();

 private:
  Inquiries() = default;
  // Those of this process.
  static Inquiries*& Instance();
  // Around a fork, in the thread that forks.
  void Pause();
  void Resume();
  // What a child goes on with: the lock, the condition and the threads are the parent's.
  static void StartAnew();

  void StartThread();
  void Work();
  // Runs the first question that waits, without the lock, but not while the process is forked. There may be none left.
  void RunNext(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Answer()>> waiting_;
  std::map<int64_t, std::future<Answer>> answers_;
  int64_t last_number_ = 0;
  int threads_ = 0;
  int active_ = 0;  // questions being worked on
  bool paused_ = false;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SUPPORT_QUERY_H_
