"""The trial on the caller's calls: sides in turn, and the median decides."""

from __future__ import annotations

import threading

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
    run(equal, [1.0, 1.0], [1.0, 1.0])
    assert slower.is_faster is False
    assert equal.is_faster is False


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
