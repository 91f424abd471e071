"""The trial on the caller's calls: sides in turn, and the median decides."""

from __future__ import annotations

import os
import threading

import pytest

from hlo_dispatch.automatic_freezing import trial as module
from hlo_dispatch.automatic_freezing.trial import FROZEN, PLAIN, CallTrial


def run(trial: CallTrial, plain: list[float | None], frozen: list[float | None]) -> None:
    for seconds in zip(plain, frozen, strict=True):
        for side in (PLAIN, FROZEN):
            turn = trial.begin()
            assert turn.side == side
            trial.end(turn, seconds[side])


def test_the_first_call_of_each_side_does_not_count() -> None:
    trial = CallTrial(2)
    run(trial, [1.0, 2.0], [50.0, 1.0])
    assert trial.is_faster is None
    run(trial, [2.0], [1.0])
    assert trial.is_faster is True
    assert trial.seconds == (2.0, 1.0)


def test_the_slower_one_loses_and_a_tie_is_lost() -> None:
    slower, equal = CallTrial(1), CallTrial(1)
    run(slower, [1.0, 1.0], [1.0, 1.5])
    run(equal, [1.0] * 4, [1.0] * 4)
    assert slower.is_faster is False
    assert equal.is_faster is None, "it might be noise"
    run(equal, [1.0], [1.0])
    assert equal.is_faster is False


def test_a_gain_that_may_be_noise_is_none() -> None:
    little, more = CallTrial(1), CallTrial(1)
    run(little, [1.0, 1.0], [1.0, 0.99])
    run(more, [1.0, 1.0], [1.0, 0.97])
    assert (little.is_faster, more.is_faster) == (False, True)


def test_times_that_overlap_are_no_answer_yet() -> None:
    """A machine that is busy in half of the calls of both sides, at first in those of the faster one."""
    trial = CallTrial(5)
    run(trial, [9.0, 2.0, 2.0, 4.0, 2.0, 2.0], [9.0, 1.0, 4.0, 4.0, 3.0, 1.0])
    assert trial.is_faster is None
    run(trial, [2.0, 4.0] * 7, [1.0, 1.0] * 7)
    assert trial.is_faster is True
    noisy = CallTrial(5)
    run(noisy, [9.0] + [2.0, 4.0] * 9, [9.0] + [3.0, 1.5] * 9)
    assert noisy.is_faster is None
    run(noisy, [2.0, 4.0], [3.0, 1.5])
    assert noisy.is_faster is True
    assert noisy.seconds == (3.0, 2.25)


def test_calls_that_nobody_timed_are_repeated() -> None:
    trial = CallTrial(1)
    run(trial, [1.0, None], [1.0, 1.0])
    assert trial.is_faster is None
    run(trial, [3.0], [2.0])
    assert trial.is_faster is True
    assert trial.seconds == (3.0, 1.0)


def test_a_call_waits_for_the_one_before() -> None:
    trial, order = CallTrial(1), []
    first = trial.begin()

    def second() -> None:
        trial.begin()
        order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    order.append("first")
    trial.end(first, 1.0)
    thread.join(60)
    assert order == ["first", "second"]


def test_neither_of_two_calls_that_overlap_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits for the one before as long as such calls take, and some more."""
    monkeypatch.setattr(module, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(module, "SHORTEST_WAIT", 0.0)
    trial = CallTrial(1)
    first = trial.begin()
    second = trial.begin()
    assert (first.is_counted, second.is_counted) == (False, False)
    for turn in (first, second):
        trial.end(turn, 4.0)
    assert trial.longest_wait == 8.0
    run(trial, [1.0, 2.0], [1.0, 1.0])
    assert trial.seconds == (2.0, 1.0), "4.0 counts nowhere"
    trial.end(trial.begin(), 600.0)
    assert trial.longest_wait < 60


def test_a_trial_of_calls_that_all_overlap_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT", 0.0)
    trial = CallTrial(1)
    for _ in range(30):
        assert trial.is_faster is None or trial.is_faster is False
        trial.begin()
    assert trial.is_faster is False
    assert trial.seconds == (None, None)


def test_a_call_of_the_parent_process_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = CallTrial(1)
    trial.begin().is_ready.wait = _fails  # type: ignore[method-assign]
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert trial.begin().is_counted


def _fails(timeout: float | None = None) -> bool:
    raise AssertionError("nobody will set it")
