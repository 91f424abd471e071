"""Timer of demo and benches: turns, batches, medians."""

from __future__ import annotations

import itertools
import time

import pytest

from hlo_dispatch.demo.timing import Timing, interleaved


@pytest.mark.timing
def test_sides_are_told_apart_and_take_turns():
    order = []

    def slow():
        order.append("slow")
        time.sleep(0.005)

    def fast():
        order.append("fast")
        time.sleep(0.001)

    finished = []
    times = interleaved({"slow": slow, "fast": fast}, seconds=1.0, rounds=8, progress=finished.append)
    assert times["slow"].median > times["fast"].median >= 0.001
    assert len(times["slow"].samples) == len(times["fast"].samples) >= 15
    assert finished == sorted(finished)
    assert finished[-1] == 1.0
    changes = sum(one != other for one, other in itertools.pairwise(order))
    assert changes >= 7  # five rounds, however busy the machine


@pytest.mark.timing
def test_short_calls_are_timed_in_batches():
    calls = 0

    def tiny():
        nonlocal calls
        calls += 1

    times = interleaved({"tiny": tiny}, seconds=0.01, rounds=5)
    assert calls > 100 * len(times["tiny"].samples)
    assert times["tiny"].median < 1e-5


def test_spread_of_one_sample_is_zero():
    assert Timing((1.0,)).spread == 0.0
    assert Timing((1.0, 2.0, 3.0)).median == 2.0
