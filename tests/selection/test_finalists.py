"""Finalists: the fastest of several programs, on a simulated clock."""

from __future__ import annotations

import random
import time

import pytest

from hlo_dispatch.autotune.compare.finalists import fastest, finalists_of
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.run.deadline import Deadline


class Clock:
    """Time passes only when somebody works, and now and then the whole machine is slow for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._random, self._slow = 0.0, random.Random(7), 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def worker(self, seconds: float, noise: float = 0.0):
        def work() -> None:
            if self.now > self._slow and self._random.random() < 0.02:
                self._slow = self.now + 0.2
            pace = 1.7 if self.now < self._slow else 1.0
            self.now += seconds * pace * (1 + noise * abs(self._random.gauss(0, 1)))

        return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_lead_of_a_tenth_shows_through_noise(clock: Clock) -> None:
    for _ in range(20):
        candidates = {"slower": clock.worker(5.5e-3, 0.2), "faster": clock.worker(5e-3, 0.2)}
        winner, seconds = fastest(candidates, seconds=3.0, deadline=Deadline())
        assert winner == "faster"
        assert seconds["faster"] < seconds["slower"]


def test_a_draw_is_the_first_ones(clock: Clock) -> None:
    candidates = {"first": clock.worker(5e-3), "second": clock.worker(5e-3), "third": clock.worker(4.99e-3)}
    assert fastest(candidates, seconds=1.0, deadline=Deadline())[0] == "first"


def test_without_time_or_other_candidates_the_first_wins(clock: Clock) -> None:
    one = clock.worker(1.0)
    assert fastest({"first": one, "second": one}, seconds=3.0, deadline=Deadline(0.5)) == ("first", {})
    before = clock.now
    assert fastest({"only": one}, seconds=3.0, deadline=Deadline()) == ("only", {})
    assert clock.now == before


def test_who_may_lead() -> None:
    found = {
        "near": Time(11.0, 49.0, 0.1),
        "best": Time(10.0, 50.0, 0.1),
        "far": Time(15.0, 45.0, 0.1),
        "uncertain": Time(15.0, 45.0, 3.0),
    }
    assert finalists_of(found) == ["near", "best", "uncertain"]
