"""The cases for pytest-benchmark: `pytest bench/ --benchmark-only`, its options and its JSON included.

    pytest bench/ --benchmark-only --tag primary --benchmark-autosave
    pytest bench/ --benchmark-only -k conv_bias_relu --benchmark-compare

Every side runs in a worker of its own, as in `hlo-dispatch bench`; what is recorded is the time inside of it.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import time
from collections.abc import Iterator

import jax
import pytest

from hlo_dispatch.bench import micro
from hlo_dispatch.bench.cases import CASES, Case

ROUNDS = 20
pytest.importorskip("pytest_benchmark")


class Clock:
    """The wall's clock without the way to the workers: what they measured counts in its place."""

    ahead = 0.0

    @classmethod
    def now(cls) -> float:
        return time.perf_counter() + cls.ahead


@pytest.fixture(scope="session")
def workers() -> Iterator[micro.Micro]:
    with micro.Micro(micro.SIDES, jax.__version__, say=print) as started:
        yield started


@pytest.mark.parametrize("side", micro.SIDES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "/"))
@pytest.mark.benchmark(timer=Clock.now)
def test_case(benchmark, workers: micro.Micro, case: Case, side: str) -> None:
    problem = workers.ready(case, side)
    if problem:
        pytest.skip(problem)
    benchmark.group = case.name
    benchmark.extra_info |= {"side": side, "gflop": case.work / 1e9, "megabytes": case.bytes_moved / 1e6}

    def once() -> None:
        begin = time.perf_counter()
        seconds = workers.once(side)
        Clock.ahead += seconds - (time.perf_counter() - begin)

    benchmark.pedantic(once, rounds=ROUNDS, warmup_rounds=2)
