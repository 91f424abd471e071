"""Loops on XLA's threads (kernels/common/parallel.cc), with a pool that fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from loop_programs import compiled

pytestmark = pytest.mark.any_processor

# In the place of XLA's interface: a pool whose second task meets the end of memory, as `new` in XLA's own may.
POOL = """
#pragma once
#include <cstdint>
#include <functional>
#include <new>
#include <thread>
#include <vector>
namespace xla::ffi {
class ThreadPool {
 public:
  template <typename Task>
  void Schedule(Task task) {
    if (!threads.empty()) throw std::bad_alloc();
    threads.emplace_back(task);
    // Not before the helper has begun, so that it is at work when the second task cannot be had.
    while (begun == nullptr || !*begun) std::this_thread::yield();
  }
  int64_t num_threads() const { return 4; }
  std::vector<std::thread> threads;
  const volatile bool* begun = nullptr;
};
}
"""

PROGRAM = """
#include <atomic>
#include <chrono>
#include <memory>
#include "common/parallel.h"
int main() {
  xla::ffi::ThreadPool pool;
  volatile bool begun = false;
  pool.begun = &begun;
  const auto caller = std::this_thread::get_id();
  std::atomic<int> done{0}, late{0};
  auto alive = std::make_shared<std::atomic<bool>>(true);
  int problem = 0;
  try {
    hlo_dispatch::Parallel(&pool).For(100, 1, [&, alive](int64_t, int64_t) {
      if (std::this_thread::get_id() != caller) {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      late += !*alive;
      ++done;
    });
  } catch (const std::bad_alloc&) {
    problem = 2;  // what cannot be shared is no reason not to do it
  }
  *alive = false;  // what the pieces use is gone
  for (std::thread& thread : pool.threads) thread.join();
  if (late != 0) return 1;
  return problem != 0 ? problem : done == 100 ? 0 : 3;
}
"""


def test_a_helper_that_cannot_be_had(tmp_path: Path) -> None:
    """The one that has begun is waited for, and every piece is done."""
    program = compiled(tmp_path, PROGRAM, POOL)
    assert subprocess.run([program], check=False, timeout=60).returncode == 0


# Two threads that count what they are given, and sleep until then.
SLEEPERS = """
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>
namespace xla::ffi {
class ThreadPool {
 public:
  ThreadPool() {
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~ThreadPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  template <typename Task>
  void Schedule(Task task) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(task));
    ++scheduled;
    changed_.notify_one();
  }
  int64_t num_threads() const { return 2; }
  int64_t scheduled = 0;

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};
}
"""

CALLS_IN_A_ROW = """
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include "common/parallel.h"
constexpr int64_t kCalls = 20000;
int main() {
  xla::ffi::ThreadPool pool;
  const hlo_dispatch::Parallel parallel(&pool);
  int64_t failures = 0;
  for (int64_t i = 0; i < kCalls; ++i) {
    std::atomic<int64_t> sum{0};
    try {
      parallel.For(40, 1, [&](int64_t begin, int64_t end) {
        for (volatile int k = 0; k < 500; k = k + 1) {
        }
        for (int64_t n = begin; n < end; ++n) sum += n;
        if (i % 100 == 0 && begin == 20) throw std::runtime_error("");
      });
    } catch (const std::runtime_error&) {
      ++failures;
      continue;
    }
    if (sum != 40 * 39 / 2) return 1;
  }
  if (failures != kCalls / 100) return 2;
  // Most were done by a helper that had not gone to sleep again.
  std::printf("%ld", static_cast<long>(pool.scheduled));
  return pool.scheduled < kCalls ? 0 : 3;
}
"""


def test_calls_in_a_row_find_their_helper_awake(tmp_path: Path) -> None:
    program = compiled(tmp_path, CALLS_IN_A_ROW, SLEEPERS, options=("-O1",))
    assert subprocess.run([program], check=False, timeout=60, capture_output=True).returncode == 0


STAY = """
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include "common/idle_helpers.h"
int main() {
  using Clock = std::chrono::steady_clock;
  hlo_dispatch::IdleHelpers helpers;
  std::atomic<bool> is_over{false};
  int count = 0, most = 0;
  std::thread giver([&] {
    const auto end = Clock::now() + std::chrono::milliseconds(500);
    while (Clock::now() < end) {
      helpers.Give(1, [&count] {
        const auto is_done = Clock::now() + std::chrono::microseconds(100);
        while (Clock::now() < is_done) {
        }
        ++count;
      });
    }
    is_over = true;
  });
  while (!is_over) {
    count = 0;
    helpers.Wait();
    most = std::max(most, count);
  }
  giver.join();
  // What a millisecond has room for, and one more.
  return most > 0 && most <= 11 ? 0 : 1;
}
"""


def test_a_helper_leaves_where_there_is_always_more(tmp_path: Path) -> None:
    """XLA's own loops run on the same threads, and wait for what they have scheduled there."""
    program = compiled(tmp_path, STAY, SLEEPERS, options=("-O1",))
    assert subprocess.run([program], check=False, timeout=60).returncode == 0
