"""oneTBB's threads (kernels/common/tbb_*.cc).

Loops on them: every piece once, for several callers, and its failure. Others in their place: who comes to help does,
early, late or never, and nobody else.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from loop_programs import compiled

from hlo_dispatch.vendor import libraries

pytestmark = pytest.mark.any_processor

PROGRAM = """
#include <dlfcn.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/tbb_threads.h"

using hlo_dispatch::TbbThreads;

static std::atomic<int> problems{0};

static void Check(const TbbThreads& threads, int64_t count, int64_t grain) {
  std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
  threads.For(count, grain, [&](int64_t begin, int64_t end) {
    if (begin < 0 || end > count || begin >= end) ++problems;
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (const auto& times : seen) problems += times != 1;
}

int main(int, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return 2;
  const auto threads = TbbThreads::Of(library);
  if (threads == nullptr || threads->count() < 1) return 3;
  if (TbbThreads::Of(dlopen(nullptr, RTLD_NOW)) == nullptr) return 4;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      for (int64_t turn = 0; turn < 2000; ++turn) Check(*threads, turn % 37, 1 + turn % (3 + caller));
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int turn = 0; turn < 100; ++turn) {
    try {
      threads->For(64, 1, [&](int64_t begin, int64_t) {
        if (begin == turn % 64) throw std::runtime_error("thrown");
      });
      ++problems;
    } catch (const std::runtime_error&) {
    }
  }
  // A loop inside of a loop.
  std::atomic<int> inner{0};
  threads->For(8, 1, [&](int64_t, int64_t) { threads->For(8, 1, [&](int64_t, int64_t) { ++inner; }); });
  return problems == 0 && inner == 64 ? 0 : 1;
}
"""


GATHERING = """
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/tbb_threads.h"

using hlo_dispatch::TbbThreads;
using Help = std::function<void()>;
using Clock = std::chrono::steady_clock;

static std::atomic<int> problems{0};

// The threads that do the pieces of a loop within body(), each of which takes a while.
static std::set<std::thread::id> Doing(const TbbThreads& threads, const std::function<bool(size_t)>& is_enough) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  const auto end = Clock::now() + std::chrono::seconds(20);
  std::atomic<bool> enough{false};
  while (!enough && Clock::now() < end) {
    threads.For(64, 1, [&](int64_t, int64_t) {
      const auto until = Clock::now() + std::chrono::microseconds(20);
      while (Clock::now() < until) {
      }
      std::lock_guard<std::mutex> lock(mutex);
      seen.insert(std::this_thread::get_id());
      if (is_enough(seen.size())) enough = true;
    });
  }
  problems += !enough;
  return seen;
}

int main(int, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return 2;
  const auto threads = TbbThreads::Of(library);
  if (threads == nullptr) return 3;
  if (threads->count() < 2) return 0;
  const auto helpers = threads->count() - 1;
  // Its own are awake then.
  threads->For(64, 1, [](int64_t, int64_t) { std::this_thread::sleep_for(std::chrono::microseconds(50)); });

  // Helpers that come at once: they and the caller do everything, and all of them do something.
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<std::thread> pool;
    std::set<std::thread::id> allowed{std::this_thread::get_id()}, seen;
    const auto call = [&](Help help) {
      pool.emplace_back(std::move(help));
      allowed.insert(pool.back().get_id());
    };
    threads->Gather(threads->count(), helpers, call, [&] {
      seen = Doing(*threads, [&](size_t count) { return count == static_cast<size_t>(helpers) + 1; });
    });
    for (std::thread& thread : pool) thread.join();
    for (const auto& id : seen) problems += allowed.count(id) == 0;
  }
  // Nobody comes; more come than there are places for; one comes when all is over.
  std::vector<Help> late;
  threads->Gather(threads->count(), helpers, [&](Help help) { late.push_back(std::move(help)); }, [&] {
    const auto seen = Doing(*threads, [](size_t count) { return count == 1; });
    problems += seen != std::set<std::thread::id>{std::this_thread::get_id()};
  });
  for (const Help& help : late) help();
  {
    std::vector<std::thread> pool;
    const auto twice = [&](Help help) {
      pool.emplace_back(help);
      pool.emplace_back(help);
    };
    for (int turn = 0; turn < 200; ++turn) {
      const auto work = [&] { Doing(*threads, [](size_t count) { return count >= 1; }); };
      threads->Gather(threads->count(), helpers, twice, work);
    }
    for (std::thread& thread : pool) thread.join();
  }
  // Several callers, of which some fail, one within another, and helpers that are callers, too.
  std::vector<std::thread> callers;
  std::atomic<int> done{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      std::vector<std::thread> pool;
      const auto call = [&](Help help) { pool.emplace_back(std::move(help)); };
      for (int turn = 0; turn < 100; ++turn) {
        const auto loop = [&] { threads->For(16, 1, [&](int64_t, int64_t) { ++done; }); };
        try {
          threads->Gather(threads->count(), helpers, call, [&] {
            loop();
            threads->Gather(threads->count(), helpers, call, loop);
            if (turn % 3 == caller % 3) throw std::runtime_error("thrown");
          });
          problems += turn % 3 == caller % 3;
        } catch (const std::runtime_error&) {
          problems += turn % 3 != caller % 3;
        }
      }
      for (std::thread& thread : pool) thread.join();
    });
  }
  for (std::thread& caller : callers) caller.join();
  problems += done != 4 * 100 * 2 * 16;
  // A helper that cannot be had.
  int turns = 0;
  threads->Gather(threads->count(), helpers, [](const Help&) { throw std::bad_alloc(); }, [&] { ++turns; });
  return problems == 0 && turns == 1 ? 0 : 1;
}
"""


@pytest.mark.parametrize("code", [PROGRAM, GATHERING], ids=["loops", "helpers"])
def test_threads(tmp_path: Path, code: str) -> None:
    tbb = Path(libraries.onednn().path).parent / "libtbb.so.12"
    if not tbb.is_file():
        pytest.skip("no oneTBB beside this oneDNN")
    program = compiled(tmp_path, code, options=("-Wall", "-Wextra", "-Werror"))
    assert subprocess.run([program, tbb], check=False, timeout=60).returncode == 0
