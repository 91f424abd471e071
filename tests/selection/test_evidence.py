"""Sequential test on paired samples: a large difference needs few, and chance is not significant at any look."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hlo_dispatch.autotune.compare.sequential_test import ERROR, evidence, is_shown
from hlo_dispatch.autotune.compare.timing import Time


def test_a_large_difference_needs_few_samples() -> None:
    assert is_shown([0.5, 0.52, 0.49], 3)
    assert is_shown([1.0, 0.6, 1.3, 0.8, 0.7], 5)
    assert is_shown([1.0, 1.02], 2)


def test_few_samples_that_scatter_show_nothing() -> None:
    assert not is_shown([1.0, 0.2, -0.3, 1.1, -0.1], 5)
    assert not is_shown([1.0, 0.1], 2)
    assert not is_shown([1.0], 5)


def test_twelve_that_agree_are_enough_however_noisy() -> None:
    values = [1e-3, 5.0, 0.2, 300.0, 0.01, 2.0, 0.5, 7.0, 0.03, 1.0, 90.0, 0.2]
    assert is_shown(values, 5)
    assert not is_shown([*values[:11], -1.0], 5)


def test_the_sign_test_is_the_integral_it_says() -> None:
    # One positive sample: the integral of 2 (2p) from 1/2 to 1 is 3/2; by size one sample says nothing.
    assert evidence([1.0]) == pytest.approx((3 / 2 + 1 + 1) / 3)
    assert evidence([-1.0]) == pytest.approx((1 / 2 + 1 + 1) / 3)


@pytest.mark.parametrize("first", [2, 3, 5])
@pytest.mark.parametrize(
    "draw",
    [
        lambda r: r.gauss(0, 1),
        lambda r: r.gauss(0, 1) / max(1e-3, abs(r.gauss(0, 1))),
        lambda r: r.choice((-1, 1)) * r.expovariate(1),
    ],
    ids=["normal", "heavy tails", "spikes"],
)
def test_chance_shows_nothing_however_often_one_asks(draw: Callable[[random.Random], float], first: int) -> None:
    numbers, wrong, series = random.Random(5), 0, 200
    for _ in range(series):
        values = [draw(numbers) for _ in range(30)]
        wrong += any(is_shown(values[:count], first) for count in range(first, 31))
    assert wrong <= ERROR * series


def test_what_always_loses_is_settled_however_its_times_scatter() -> None:
    """A convolution whose calls took between one and six times as long as stock's."""
    numbers = random.Random(2)
    gains = tuple(-numbers.uniform(0.01, 5.0) for _ in range(15))
    assert not Time(3.0, -2.5, 1.0, gains).may_win(1.0, 0.01)


def test_a_win_of_many_times_needs_few_turns_however_they_scatter() -> None:
    gains = (4e-3, 37e-3, 1e-3, 70e-3, 90e-3)
    assert Time(27e-6, 37e-3, 3e-2, gains).wins(1e-5)
