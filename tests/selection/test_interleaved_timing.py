"""Interleaved trials on a simulated clock, so that the results are known."""

from __future__ import annotations

import random

import pytest

from hlo_dispatch.autotune.compare import timing
from hlo_dispatch.autotune.compare.timing import Time, interleaved


class Clock:
    """Time that passes only when somebody works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.calls: dict[str, int] = {}
        self.random = random.Random(3)
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def worker(self, name: str, seconds: float, noise: float = 0.0):
        def work() -> None:
            self.calls[name] = self.calls.get(name, 0) + 1
            self.now += seconds * (1 + noise * abs(self.random.gauss(0, 1)))

        return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_clear_answer_ends_it(clock: Clock) -> None:
    stock, own = interleaved([clock.worker("stock", 2e-3), clock.worker("own", 1e-3)], seconds=100)
    assert own.gain == pytest.approx(1e-3)
    assert own.wins(0.02 * stock.seconds)
    assert clock.calls["stock"] < 30


def test_noise_wins_nothing(clock: Clock) -> None:
    for _ in range(20):
        stock, own = interleaved([clock.worker("stock", 1e-3, 0.3), clock.worker("own", 1e-3, 0.3)], seconds=0.2)
        assert not own.wins(0.02 * stock.seconds)


def test_a_gain_shows_through_noise(clock: Clock) -> None:
    for _ in range(20):
        stock, own = interleaved([clock.worker("stock", 1.3e-3, 0.2), clock.worker("own", 1e-3, 0.2)], seconds=0.5)
        assert own.wins(0.02 * stock.seconds)


def test_where_nothing_is_clear_it_takes_longer_but_not_for_ever(clock: Clock) -> None:
    begin = clock.now
    stock, own = interleaved([clock.worker("stock", 1e-3, 3.0), clock.worker("own", 1e-3, 3.0)], seconds=0.1)
    spent = clock.now - begin
    assert not own.wins(0.02 * stock.seconds)
    assert spent < 1.5
    if own.may_win(stock.seconds, 0.0):
        assert spent > 0.4


def test_a_gain_that_is_more_than_noise_but_not_surely_enough_is_open() -> None:
    time = Time(seconds=0.9, gain=0.1, error=0.03)
    assert not time.wins(0.03)
    assert time.may_win(1.0, 0.03)
    assert not Time(seconds=0.9, gain=0.1, error=0.005).may_win(1.0, 0.03)  # it wins


def test_a_candidate_that_clearly_loses_drops_out(clock: Clock) -> None:
    workers = [clock.worker("stock", 1e-3, 0.1), clock.worker("slow", 9e-3), clock.worker("close", 1e-3, 0.1)]
    interleaved(workers, seconds=0.5)
    assert clock.calls["slow"] < clock.calls["close"]


def test_short_calls_are_timed_in_batches(clock: Clock) -> None:
    stock, own = interleaved([clock.worker("stock", 2e-6), clock.worker("own", 1e-6)], seconds=0.1)
    assert (stock.seconds, own.seconds) == pytest.approx((2e-6, 1e-6))
    assert clock.calls["own"] > 100


def test_long_calls_are_made_few_times(clock: Clock) -> None:
    interleaved([clock.worker("stock", 0.5), clock.worker("own", 0.4)], seconds=0.1)
    assert clock.calls["stock"] <= 6


def test_a_gain_that_does_not_matter_is_not_looked_for(clock: Clock) -> None:
    interleaved([clock.worker("stock", 5e-6, 0.5), clock.worker("own", 5e-6, 0.5)], seconds=0.1, least=1e-3)
    assert clock.now < 0.25


@pytest.mark.parametrize(("gain", "may"), [(-0.5, False), (-0.05, True), (0.05, True), (0.9, False)])
def test_noise_hides_no_gain_of_one_that_seems_to_lose(gain: float, may: bool) -> None:
    assert Time(seconds=1 - gain, gain=gain, error=0.08).may_win(1.0, 0.0) == may
