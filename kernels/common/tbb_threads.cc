#include "common/tbb_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "common/tbb_arenas.h"
#include "common/tbb_functions.h"

namespace hlo_dispatch {

namespace d1 = tbb::detail::d1;

namespace {

// State that the threads of one loop share, on the caller's stack; the caller returns when all are done.
struct Loop {
  int64_t count;
  int64_t grain;
  const std::function<void(int64_t, int64_t)>& body;
  d1::wait_context waited_for;
  std::atomic<int64_t> next{0};
  std::mutex mutex{};
  std::exception_ptr failure{};

  void Work() {
    try {
      for (int64_t begin; (begin = next.fetch_add(grain)) < count;) body(begin, std::min(count, begin + grain));
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
      next = count;
    }
  }
};

class Worker final : public d1::task {
 public:
  explicit Worker(Loop& loop) : loop_(loop) {}
  d1::task* execute(d1::execution_data& data) override {
    loop_.Work();
    return cancel(data);
  }
  // Nothing of the loop may be touched behind this.
  d1::task* cancel(d1::execution_data&) override {
    loop_.waited_for.release();
    return nullptr;
  }

 private:
  Loop& loop_;
};

}  // namespace

std::unique_ptr<const TbbThreads> TbbThreads::Of(void* library) {
  if (!FindTbbFunctions(library)) return nullptr;
  return std::unique_ptr<TbbThreads>(new TbbThreads());
}

TbbThreads::TbbThreads() : arenas_(std::make_unique<TbbArenas>()) {}
TbbThreads::~TbbThreads() = default;

int64_t TbbThreads::count() const { return std::max(1, tbb::this_task_arena::max_concurrency()); }

void TbbThreads::For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) const {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t workers = std::min(this->count(), (count - 1) / grain + 1);
  if (workers <= 1) {
    body(0, count);
    return;
  }
  Loop loop{count, grain, body, static_cast<uint32_t>(workers)};
  // Nothing that somebody else cancels cancels this.
  tbb::task_group_context context(tbb::task_group_context::isolated);
  std::vector<Worker> tasks(static_cast<size_t>(workers), Worker(loop));
  for (size_t i = 1; i < tasks.size(); ++i) d1::spawn(tasks[i], context);
  d1::execute_and_wait(tasks[0], context, loop.waited_for, context);
  if (loop.failure != nullptr) std::rethrow_exception(loop.failure);
}

void TbbThreads::Gather(int64_t threads, int64_t helpers, const std::function<void(std::function<void()>)>& call,
                        const std::function<void()>& body) const {
  if (threads <= 1 && count() <= 1) return body();
  arenas_->Run(threads, std::min(helpers, threads - 1), call, body);
}

}  // namespace hlo_dispatch
