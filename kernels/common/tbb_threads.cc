#include "common/tbb_threads.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "common/tbb_abi.h"
#include "common/tbb_arenas.h"

namespace hlo_dispatch {

using tbb_abi::Context;
using tbb_abi::ExecutionData;
using tbb_abi::Functions;
using tbb_abi::Task;
using tbb_abi::WaitContext;

namespace {

constexpr int kInterfaceFamily = 12;  // of libtbb.so.12

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  // In the library and what it was linked with.
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// State that the threads of one loop share, on the caller's stack; the caller returns when all are done.
struct Loop {
  int64_t count;
  int64_t grain;
  const std::function<void(int64_t, int64_t)>& body;
  void (*notify_waiters)(uintptr_t);
  WaitContext waited_for{};
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

  void Done() {
    // Nothing of the loop may be touched behind this.
    const auto notify = notify_waiters;
    const auto address = reinterpret_cast<uintptr_t>(&waited_for);
    if (waited_for.references.fetch_sub(1) == 1) notify(address);
  }
};

class Worker final : public Task {
 public:
  explicit Worker(Loop& loop) : loop_(loop) {}
  Task* execute(ExecutionData&) override {
    loop_.Work();
    loop_.Done();
    return nullptr;
  }
  Task* cancel(ExecutionData&) override {
    loop_.Done();
    return nullptr;
  }

 private:
  Loop& loop_;
};

}  // namespace

std::unique_ptr<const TbbThreads> TbbThreads::Of(void* library) {
  Functions f{};
#define HLO_DISPATCH_TBB(name) "_ZN3tbb6detail2r1" name
#define HLO_DISPATCH_ARENA "RNS0_2d115task_arena_baseE"
#define HLO_DISPATCH_CONTEXT "RNS0_2d118task_group_contextE"
  const bool has_all =
      Find(library, "TBB_runtime_interface_version", f.runtime_interface_version) &&
      Find(library, HLO_DISPATCH_TBB("10initializeE") HLO_DISPATCH_CONTEXT, f.initialize) &&
      Find(library, HLO_DISPATCH_TBB("7destroyE") HLO_DISPATCH_CONTEXT, f.destroy) &&
      Find(library, HLO_DISPATCH_TBB("5spawnERNS0_2d14taskERNS2_18task_group_contextE"), f.spawn) &&
      Find(library,
           HLO_DISPATCH_TBB("16execute_and_waitERNS0_2d14taskERNS2_18task_group_contextERNS2_12wait_contextES6_"),
           f.execute_and_wait) &&
      Find(library, HLO_DISPATCH_TBB("4waitERNS0_2d112wait_contextERNS2_18task_group_contextE"), f.wait) &&
      Find(library, HLO_DISPATCH_TBB("14notify_waitersEm"), f.notify_waiters) &&
      Find(library, HLO_DISPATCH_TBB("10initializeE") HLO_DISPATCH_ARENA, f.initialize_arena) &&
      Find(library, HLO_DISPATCH_TBB("9terminateE") HLO_DISPATCH_ARENA, f.terminate_arena) &&
      Find(library, HLO_DISPATCH_TBB("7executeE") HLO_DISPATCH_ARENA "RNS2_13delegate_baseE", f.execute) &&
      Find(library, HLO_DISPATCH_TBB("15max_concurrencyEPKNS0_2d115task_arena_baseE"), f.max_concurrency);
#undef HLO_DISPATCH_CONTEXT
#undef HLO_DISPATCH_ARENA
#undef HLO_DISPATCH_TBB
  if (!has_all || f.runtime_interface_version() / 1000 != kInterfaceFamily) return nullptr;
  std::unique_ptr<TbbThreads> threads(new TbbThreads());
  threads->functions_ = std::make_shared<const Functions>(f);
  threads->arenas_ = std::make_unique<TbbArenas>(threads->functions_);
  return threads;
}

TbbThreads::TbbThreads() = default;
TbbThreads::~TbbThreads() = default;

int64_t TbbThreads::count() const { return std::max(1, functions_->max_concurrency(nullptr)); }

void TbbThreads::For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) const {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t workers = std::min(this->count(), (count - 1) / grain + 1);
  if (workers <= 1) {
    body(0, count);
    return;
  }
  Loop loop{count, grain, body, functions_->notify_waiters};
  loop.waited_for.references = static_cast<uint64_t>(workers);
  Context context;
  functions_->initialize(context);
  std::vector<Worker> tasks(static_cast<size_t>(workers), Worker(loop));
  for (size_t i = 1; i < tasks.size(); ++i) functions_->spawn(tasks[i], context);
  functions_->execute_and_wait(tasks[0], context, loop.waited_for, context);
  functions_->destroy(context);
  if (loop.failure != nullptr) std::rethrow_exception(loop.failure);
}

void TbbThreads::Gather(int64_t threads, int64_t helpers, const std::function<void(std::function<void()>)>& call,
                        const std::function<void()>& body) const {
  if (threads <= 1 && count() <= 1) return body();
  arenas_->Run(threads, std::min(helpers, threads - 1), call, body);
}

}  // namespace hlo_dispatch
