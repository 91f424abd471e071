"""Services that work in the caller's thread, with a clock that only calls move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from hlo_dispatch.automatic_freezing.jit import JittedFunction
from hlo_dispatch.automatic_freezing.memory_budget import MemoryBudget
from hlo_dispatch.automatic_freezing.services import Services


class Clock:
    """Each reading is a second later."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds


class Later:
    """Jobs that wait until a test runs them."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def __call__(self, job: Callable[[], None]) -> bool:
        self.jobs.append(job)
        return True

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def run_now(job: Callable[[], None]) -> bool:
    job()
    return True


def no_thread(job: Callable[[], None]) -> bool:
    return False


def when_ready(results: Any, done: Callable[[bool], None]) -> bool:
    jax.block_until_ready(results)
    done(True)
    return True


SERVICES = Services(
    compile=run_now,
    preprocess=run_now,
    free=run_now,
    when_ready=when_ready,
    clock=Clock(),
    samples=0,
    smallest_bytes=1000,
)


def jitted(function: Callable[..., Any], services: Services = SERVICES, **options: Any) -> JittedFunction:
    """`hlo_dispatch.jit` with services of its own, and a budget for each function."""
    return JittedFunction(function, options, replace(services, budget=MemoryBudget(1 << 30)))


def is_frozen(function: JittedFunction) -> bool:
    """Whether the calls of its only structure run frozen."""
    (site,) = function.sites
    assert not site.preparation.failure
    return site.program is not None
