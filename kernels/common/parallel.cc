#include "common/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "common/idle_helpers.h"
#include "common/scheduling.h"

namespace hlo_dispatch {

namespace {

// Two calls at a time may ask for all of the pool's threads. Whoever asks more often than the pool's threads come would
// fill its queues with tasks of calls that have returned.
constexpr int64_t kWaitingPerThread = 2;

// A thread that sleeps takes longer to wake than most pieces take to be done.
constexpr std::chrono::microseconds kSpin(50);

// Shared with the helpers: one that starts late, when the caller is gone, finds nothing left to take.
struct Loop {
  int64_t count;
  int64_t grain;
  const std::function<void(int64_t, int64_t)>* body;  // the caller's; alive while a piece is being worked on
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> active{0};  // threads that may be working on a piece
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr failure;

  void Work() {
    // Before it takes a piece, so that whoever sees that there is none left sees this, too.
    ++active;
    for (int64_t begin; (begin = next.fetch_add(grain)) < count;) {
      try {
        (*body)(begin, std::min(count, begin + grain));
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
        next = count;
      }
    }
    if (--active > 0) return;
    std::lock_guard<std::mutex> lock(mutex);
    finished.notify_all();
  }

  void Wait() {
    const auto is_done = [this] { return active == 0; };
    if (!SpinUntil(is_done, std::chrono::steady_clock::now() + kSpin)) {
      std::unique_lock<std::mutex> lock(mutex);
      finished.wait(lock, is_done);
    }
    if (failure != nullptr) std::rethrow_exception(failure);
  }
};

// Tasks that a pool has not begun. XLA's interface names no pool: those of one size share the count.
std::atomic<int64_t>& Waiting(int64_t threads) {
  static std::array<std::atomic<int64_t>, 64> waiting{};
  return waiting[static_cast<size_t>(threads) % waiting.size()];
}

}  // namespace

int64_t Parallel::threads() const {
  if (tbb_ != nullptr) return tbb_->count();
  return pool_ == nullptr ? 1 : std::max<int64_t>(1, pool_->num_threads());
}

int64_t Parallel::ThreadsFor(double work, double min_per_thread) const {
  return static_cast<int64_t>(std::clamp(work / min_per_thread, 1.0, static_cast<double>(threads())));
}

void Parallel::For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) const {
  if (tbb_ != nullptr) return tbb_->For(count, grain, body);
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t helpers = std::min(threads() - 1, (count - 1) / grain);
  if (helpers <= 0) {
    body(0, count);
    return;
  }
  auto loop = std::make_shared<Loop>();
  loop->count = count;
  loop->grain = grain;
  loop->body = &body;
  try {
    Schedule(helpers, [loop] { loop->Work(); });
  } catch (...) {
    // Fewer helpers, then. To leave now would take `body` away from those that have begun.
  }
  loop->Work();
  loop->Wait();
}

void Parallel::Schedule(int64_t count, const std::function<void()>& task) const {
  const int64_t threads = this->threads();
  IdleHelpers& idle = IdleHelpers::Of(threads);
  std::atomic<int64_t>& waiting = Waiting(threads);
  const Scheduling scheduling;
  for (int64_t i = idle.Give(count, task); i < count && waiting < kWaitingPerThread * threads; ++i) {
    ++waiting;
    try {
      pool_->Schedule([&waiting, &idle, task] {
        --waiting;
        task();
        // Whoever schedules is not to be held up.
        if (!Scheduling::InThisThread()) idle.Wait();
      });
    } catch (...) {
      --waiting;
      throw;
    }
  }
}

void Parallel::Gather(const TbbThreads* tbb, int64_t division, bool has_helpers,
                      const std::function<void()>& body) const {
  if (tbb == nullptr || pool_ == nullptr) return body();
  const int64_t helpers = has_helpers ? threads() - 1 : 0;
  tbb->Gather(
      helpers > 0 ? division : 1, helpers, [this](const std::function<void()>& help) { Schedule(1, help); }, body);
}

}  // namespace hlo_dispatch
