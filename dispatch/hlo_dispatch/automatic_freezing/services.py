"""Services of automatic freezing: the threads, the clock and the limits, which tests replace."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax

from hlo_dispatch.automatic_freezing.background import BackgroundThread, Job, ShortThreads
from hlo_dispatch.automatic_freezing.memory_budget import MemoryBudget, configured_bytes

SMALLEST_BYTES = 64 << 10
"""Bytes of static leaves from which on they are worth freezing: a core's own cache holds less (constant_weights.py)."""
_REPEATS = 2
_SAMPLES = 5
_NICENESS = 10
_compiling = BackgroundThread("hlo-dispatch-freeze-compile", _NICENESS)
_preprocessing = BackgroundThread("hlo-dispatch-freeze-preprocess")
_timing = ShortThreads("hlo-dispatch-freeze-time")


@dataclass(frozen=True)
class Services:
    """What the sites of one function use."""

    compile: Callable[[Job], bool] = field(default=lambda job: _compile(job))
    """Runs a job that compiles: later, at low priority, one at a time; returns whether it will run."""
    preprocess: Callable[[Job], bool] = _preprocessing.submit
    """Runs a job that computes; one at a time; returns whether it will run."""
    free: Callable[[Job], bool] = _preprocessing.submit
    """Runs a job that frees arrays; called where no lock may be taken; returns whether it will run."""
    when_ready: Callable[[Any, Callable[[bool], None]], bool] = field(
        default=lambda results, done: _when(results, done)
    )
    """Calls a function once a pytree of results is ready, with whether it is; returns whether it will."""
    clock: Callable[[], float] = time.perf_counter
    budget: MemoryBudget = field(default_factory=lambda: process_budget())
    smallest_bytes: int = SMALLEST_BYTES
    repeats: int = _REPEATS
    """Number of calls with the leaves of the call before, until these are frozen."""
    samples: int = _SAMPLES
    """Number of times of each side of a trial; 0: there is no trial."""


@lru_cache(maxsize=1)
def process_budget() -> MemoryBudget:
    """The memory budget of this process. Raises PolicyError: the environment's is no size."""
    return MemoryBudget(configured_bytes())


def immediate() -> Services:
    """Services that freeze in the first call, in the caller's thread, without a trial."""

    def now(job: Job) -> bool:
        job()
        return True

    return Services(compile=now, preprocess=now, repeats=0, samples=0)


def _compile(job: Job) -> bool:
    # A thread that the compiling one started would have its low priority, and so would the threads of a library.
    return _preprocessing.start() and _compiling.submit(job)


def _when(results: Any, done: Callable[[bool], None]) -> bool:
    def wait() -> None:
        try:
            jax.block_until_ready(results)
            is_ready = True
        except Exception:  # it failed, or was donated to another call meanwhile
            is_ready = False
        done(is_ready)

    return _timing.submit(wait)
