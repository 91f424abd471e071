#include "common/idle_helpers.h"

#include <array>
#include <utility>

namespace hlo_dispatch {

namespace {

// As long as a token's program takes between most of its calls. Longer waits cost processor time, and few of them end
// with a call. Measured on one processor.
constexpr std::chrono::microseconds kLongest(20);
// Tasks that others have scheduled on the pool, XLA's too, wait no longer than this for calls that come one after the
// other.
constexpr std::chrono::milliseconds kStay(1);
// The score's bound: after so many more failed waits than successful ones only each kTrial-th helper waits.
constexpr int64_t kMaxScore = 16;
constexpr int64_t kTrial = 32;

}  // namespace

IdleHelpers& IdleHelpers::Of(int64_t threads) {
  // Never destroyed: a pool's threads may outlive what has a destructor.
  static auto& of_pools = *new std::array<IdleHelpers, 64>();
  return of_pools[static_cast<size_t>(threads) % of_pools.size()];
}

int64_t IdleHelpers::Give(int64_t count, const std::function<void()>& task) {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t given = 0;
  for (; given < count && static_cast<int64_t>(tasks_.size()) < idle_; ++given) {
    tasks_.push_back(task);
    ++given_;
  }
  return given;
}

bool IdleHelpers::IsWorthWaiting() {
  if (score_ > 0) return true;
  if (++left_out_ < kTrial) return false;
  left_out_ = 0;
  return true;
}

void IdleHelpers::Wait() {
  const auto leaves = std::chrono::steady_clock::now() + kStay;
  std::unique_lock<std::mutex> lock(mutex_);
  while (std::chrono::steady_clock::now() < leaves && IsWorthWaiting()) {
    const auto end = std::chrono::steady_clock::now() + kLongest;
    ++idle_;
    // What there is may be another helper's by the time that it is looked for.
    for (bool has_come = true; has_come && tasks_.empty();) {
      lock.unlock();
      has_come = SpinUntil([this] { return given_.load(std::memory_order_relaxed) > 0; }, end);
      lock.lock();
    }
    --idle_;
    if (tasks_.empty()) {
      if (score_ > 0) --score_;
      return;
    }
    if (score_ < kMaxScore) ++score_;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --given_;
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace hlo_dispatch
