#include "common/support_query.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "common/failure.h"
#include "common/signal_handler_guard.h"

namespace hlo_dispatch {

namespace {

// One core is left to the caller; more threads than this would only wait for oneDNN's own locks.
int MaxThreads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) - 1, 1, 3); }

constexpr std::chrono::seconds kMaxAnswerTime(5);  // most take some milliseconds, one may have to start the engine

}  // namespace

SupportQueries*& SupportQueries::Instance() {
  static auto* queries = new SupportQueries();  // never destroyed: threads may outlive the statics
  return queries;
}

SupportQueries& SupportQueries::Get() {
  static std::once_flag watched;
  std::call_once(watched, [] {
    Instance();
    pthread_atfork([] { Instance()->Pause(); }, [] { Instance()->Resume(); }, [] { StartAnew(); });
  });
  return *Instance();
}

int64_t SupportQueries::Ask(AnswerMaker plan, std::unique_ptr<const Attributes> attributes) {
  std::packaged_task<Answer()> task(
      [plan, attributes = std::shared_ptr<const Attributes>(std::move(attributes))] { return plan(*attributes); });
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t number = ++last_number_;
  answers_[number] = task.get_future();
  waiting_.push_back(std::move(task));
  StartThread();
  return number;
}

Answer SupportQueries::Wait(int64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = answers_.find(number);
  if (found == answers_.end()) Invalid("there is no question " + std::to_string(number) + " waiting for an answer");
  std::future<Answer> answer = std::move(found->second);
  answers_.erase(found);
  // The caller helps: that is faster than waiting, and there may be no worker thread.
  while (!waiting_.empty() && answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    RunNext(lock);
  }
  lock.unlock();
  return answer.get();
}

void SupportQueries::Finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.clear();
  changed_.wait(lock, [this] { return threads_ == 0; });
}

void SupportQueries::Pause() {
  std::unique_lock<std::mutex> lock(mutex_);
  paused_ = true;
  // For so long only: it may be the library itself that forks, to answer one of them.
  changed_.wait_for(lock, kMaxAnswerTime, [this] { return active_ == 0; });
  lock.release();  // held while the process is forked
}

void SupportQueries::Resume() {
  std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
  paused_ = false;
  changed_.notify_all();
}

void SupportQueries::StartAnew() {
  SupportQueries* parents = Instance();
  auto* queries = new SupportQueries();
  if (parents->active_ == 0) {
    queries->waiting_ = std::move(parents->waiting_);
    queries->answers_ = std::move(parents->answers_);
  }
  queries->last_number_ = parents->last_number_;
  Instance() = queries;
}

void SupportQueries::StartThread() {
  if (threads_ >= MaxThreads() || threads_ >= static_cast<int>(waiting_.size())) return;
  try {
    std::thread([this] { Work(); }).detach();
    ++threads_;
  } catch (const std::system_error&) {
    // No thread could be started: Wait answers itself.
  }
}

void SupportQueries::RunNext(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !paused_; });
  if (waiting_.empty()) return;
  std::packaged_task<Answer()> task = std::move(waiting_.front());
  waiting_.pop_front();
  ++active_;
  lock.unlock();
  task();
  lock.lock();
  --active_;
  changed_.notify_all();
}

void SupportQueries::Work() {
  BlockHostSignals();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!waiting_.empty()) RunNext(lock);
  --threads_;
  changed_.notify_all();
}

}  // namespace hlo_dispatch
