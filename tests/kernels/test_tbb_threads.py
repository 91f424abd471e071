"""Loops on oneTBB's threads (kernels/common/tbb_threads.cc): every piece once, for several callers, and its failure."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hlo_dispatch.vendor import libraries

pytestmark = pytest.mark.any_processor

KERNELS = Path(__file__).parents[2] / "kernels"

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


def test_every_piece_once(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler, "the kernels were built, so there is a compiler"
    tbb = Path(libraries.onednn().path).parent / "libtbb.so.12"
    if not tbb.is_file():
        pytest.skip("no oneTBB beside this oneDNN")
    program = tmp_path / "program"
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-"]
    command += [str(KERNELS / "common" / "tbb_threads.cc"), "-I", str(KERNELS), "-pthread", "-ldl", "-o", str(program)]
    subprocess.run(command, input=PROGRAM, text=True, check=True)
    assert subprocess.run([program, tbb], check=False, timeout=60).returncode == 0
