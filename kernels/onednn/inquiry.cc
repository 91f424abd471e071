#include "onednn/inquiry.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "common/failure.h"

namespace hlo_dispatch::onednn {

namespace {

// One core is left to the caller; more threads than this would only wait for oneDNN's own locks.
int MostThreads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) - 1, 1, 3); }

}  // namespace

Answer Inquire(Planner planner, const Attributes& attributes) {
  const CallPlan plan = planner(attributes);
  return {plan.implementation, plan.scratch_bytes, plan.Reorders()};
}

Inquiries& Inquiries::Get() {
  static auto* inquiries = new Inquiries();  // never destroyed: threads may outlive the statics
  return *inquiries;
}

int64_t Inquiries::Ask(Planner planner, std::unique_ptr<const Attributes> attributes) {
  std::packaged_task<Answer()> task(
      [planner, attributes = std::shared_ptr<const Attributes>(std::move(attributes))] {
        return Inquire(planner, *attributes);
      });
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t number = ++last_number_;
  answers_[number] = task.get_future();
  waiting_.push_back(std::move(task));
  if (threads_ < MostThreads() && threads_ < static_cast<int>(waiting_.size())) {
    try {
      std::thread([this] { Work(); }).detach();
      ++threads_;
      process_ = getpid();
    } catch (const std::system_error&) {
      // No thread to be had: Wait answers itself.
    }
  }
  return number;
}

Answer Inquiries::Wait(int64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = answers_.find(number);
  if (found == answers_.end()) {
    throw Failure(FailureKind::kInvalid, "there is no question " + std::to_string(number) + " waiting for an answer");
  }
  std::future<Answer> answer = std::move(found->second);
  answers_.erase(found);
  // Helping is quicker than waiting; and in a forked child there may be nobody to wait for.
  while (!waiting_.empty() && answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    RunNext(lock);
  }
  lock.unlock();
  return answer.get();
}

void Inquiries::Finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.clear();
  idle_.wait(lock, [this] { return threads_ == 0 || process_ != getpid(); });
}

void Inquiries::RunNext(std::unique_lock<std::mutex>& lock) {
  std::packaged_task<Answer()> task = std::move(waiting_.front());
  waiting_.pop_front();
  lock.unlock();
  task();
  lock.lock();
}

void Inquiries::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!waiting_.empty()) RunNext(lock);
  --threads_;
  idle_.notify_all();
}

}  // namespace hlo_dispatch::onednn
