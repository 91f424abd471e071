"""Thread pools that do not do what one hopes for (kernels/common/parallel.cc, tbb_arenas.cc): no call waits for them.

Eigen's pool runs a task in the thread that schedules it where a queue is full. Helpers wait for their caller, so one
that runs there must return.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from loop_programs import compiled

from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import libraries

pytestmark = [pytest.mark.any_processor, pytest.mark.any_python]

# In the place of XLA's interface. `hold` keeps every thread of a real pool, as other programs' work may.
POOLS = """
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>
namespace xla::ffi {
enum class Kind { kInline, kExchanging, kReal };
class ThreadPool {
 public:
  using Task = std::function<void()>;
  explicit ThreadPool(Kind kind) : kind_(kind) {
    if (kind == Kind::kReal) {
      for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
    }
  }
  ~ThreadPool() {
    Release();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  template <typename Given>
  void Schedule(Given given) {
    Task task(std::move(given));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (kind_ == Kind::kExchanging) {
        // Everyone runs what somebody else scheduled before.
        std::swap(task, left_);
      } else if (kind_ == Kind::kReal && queue_.size() < kLongest) {
        queue_.push_back(std::move(task));
        most = std::max(most, queue_.size());
        task = nullptr;
      }
    }
    changed_.notify_one();
    if (task) task();
  }
  int64_t num_threads() const { return kThreads; }
  void Release() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_held_ = false;
    changed_.notify_all();
  }
  static constexpr int kThreads = 4;
  static constexpr size_t kLongest = 1024;  // as Eigen's
  size_t most = 0;

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !is_held_; });
    while (true) {
      changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
  Kind kind_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = true, ends_ = false;
  std::deque<Task> queue_;
  Task left_;
  std::vector<std::thread> threads_;
};
}
"""

PROGRAM = """
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "common/parallel.h"

using hlo_dispatch::Parallel;
using xla::ffi::Kind;

constexpr int kCalls = 3000;

int main(int, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
  const auto tbb = hlo_dispatch::TbbThreads::Of(library);
  if (tbb == nullptr) return 2;
  for (const Kind kind : {Kind::kInline, Kind::kExchanging, Kind::kReal}) {
    for (const int callers : {1, 8}) {
      xla::ffi::ThreadPool pool(kind);
      const Parallel parallel(&pool);
      std::atomic<int64_t> done{0};
      std::vector<std::thread> threads;
      for (int caller = 0; caller < callers; ++caller) {
        threads.emplace_back([&] {
          for (int i = 0; i < kCalls; ++i) {
            const auto inner = [&](int64_t begin, int64_t end) { done += end - begin; };
            parallel.Gather(tbb.get(), tbb->count(), true, [&] {
              tbb->For(8, 1, inner);
              parallel.For(8, 1, inner);
            });
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      if (done != int64_t{16} * kCalls * callers) return 3;
      // Those who ask at the same moment may be one too many each.
      if (kind == Kind::kReal && pool.most > static_cast<size_t>(2 * pool.kThreads + callers)) return 4;
    }
  }
  return 0;
}
"""


def test_no_call_waits(tmp_path: Path) -> None:
    """Pools that run tasks at once or exchange them, and one whose threads are all blocked, whose queue stays short."""
    found = libraries.onednn()
    tbb = Path("none") if isinstance(found, Unavailable) else Path(found.path).parent / "libtbb.so.12"
    if not tbb.is_file():
        pytest.skip("no oneTBB beside this oneDNN")
    program = compiled(tmp_path, PROGRAM, POOLS, options=("-O1",))
    assert subprocess.run([program, tbb], check=False, timeout=120).returncode == 0
