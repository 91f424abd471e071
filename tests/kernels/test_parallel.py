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
