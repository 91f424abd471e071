"""Choice between ordinary and streaming stores, by the copies' times: the C++ class, compiled alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.any_python, pytest.mark.any_processor]

KERNELS = Path(__file__).parents[2] / "kernels"

# A machine in states, each a line of: seconds with ordinary stores, with streaming ones, of every 50th copy beside
# that (somebody else was given the processor), bytes, copies. Answers with how many of each were ordinary.
PROGRAM = """
#include <iostream>

#include "onednn/store_choice.h"

using namespace hlo_dispatch::onednn;

int main() {
  StoreChoice choice;
  double ordinary, streaming, disturbed;
  long long bytes, copies, made = 0;
  while (std::cin >> ordinary >> streaming >> disturbed >> bytes >> copies) {
    long long chosen = 0;
    for (long long i = 0; i < copies; ++i, ++made) {
      const StoreChoice::Turn turn = choice.Next(bytes);
      const bool is_ordinary = turn.kind == StoreKind::kOrdinary;
      chosen += is_ordinary;
      choice.Took(turn, (is_ordinary ? ordinary : streaming) + (made % 50 == 49 ? disturbed : 0));
    }
    std::cout << chosen << "\\n";
  }
}
"""

State = tuple[float, float, float, int, int]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    assert compiler, "the kernels were built, so there is a compiler"
    folder = tmp_path_factory.mktemp("store_choice")
    source, built = folder / "program.cc", folder / "program"
    source.write_text(PROGRAM)
    sources = [str(source), str(KERNELS / "onednn" / "store_choice.cc")]
    subprocess.run([compiler, "-std=c++17", f"-I{KERNELS}", *sources, "-o", str(built)], check=True)
    return built


def ordinary_of(program: Path, states: Sequence[State]) -> list[int]:
    lines = "\n".join(" ".join(str(number) for number in state) for state in states)
    finished = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [int(line) for line in finished.stdout.split()]


@pytest.mark.parametrize("disturbed", [0.0, 1e-3, 1.0])
def test_takes_the_faster_kind(program: Path, disturbed: float) -> None:
    (near,) = ordinary_of(program, [(40e-6, 75e-6, disturbed, 2**20, 640)])
    (far,) = ordinary_of(program, [(200e-6, 75e-6, disturbed, 2**20, 640)])
    # Two of each 64 are trials of the other kind.
    assert near >= 600
    assert far <= 40


def test_follows_a_machine_that_changes(program: Path) -> None:
    near, far = (40e-6, 75e-6, 0.0, 2**20, 640), (200e-6, 75e-6, 0.0, 2**20, 640)
    counts = ordinary_of(program, [near, far, near, far])
    # From streaming to ordinary it takes until the next trial, the other way a few copies.
    assert counts[0] >= 600
    assert counts[2] >= 640 - 64 - 20
    assert max(counts[1], counts[3]) <= 40


def test_a_small_difference_changes_nothing(program: Path) -> None:
    (count,) = ordinary_of(program, [(70e-6, 75e-6, 0.0, 2**20, 640)])
    assert count == 20


def test_large_copies_stay_out_of_the_caches(program: Path) -> None:
    assert ordinary_of(program, [(1e-6, 1.0, 0.0, 2**23 + 1, 640)]) == [0]
