"""Side-by-side comparison of one workload: stock, dispatched and frozen, in one process."""

# pyright: basic
# The frameworks have no complete type hints.
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from hlo_dispatch.demo.models import Workload
from hlo_dispatch.demo.timing import Timing, interleaved
from hlo_dispatch.report import Report

DemoProgress = Callable[[str, float], None]
"""Told what is going on and how much of it is done (0 to 1)."""


@dataclass(frozen=True)
class Compiled:
    """A compiled workload; calling it blocks until the result is there."""

    workload: Workload
    executable: Any
    seconds: float
    """What XLA's compilation took, the pass included."""
    reports: tuple[Report, ...]
    """Reports of the pass; empty for stock."""

    def __call__(self) -> Any:
        import jax

        return jax.block_until_ready(self.executable(*self.workload.arguments))

    @property
    def text(self) -> str:
        """The optimized HLO that runs."""
        return self.executable.as_text()


@dataclass(frozen=True)
class FrozenSide:
    """A workload whose weights were prepared once."""

    seconds: float
    """What the first call took: compiling, preparing, running."""
    difference: float
    """From stock, as SideBySide has it."""
    time: Timing


@dataclass(frozen=True)
class SideBySide:
    """Stock against dispatched, for one workload."""

    workload: Workload
    stock: Compiled
    dispatched: Compiled
    difference: float
    """Largest absolute difference over the largest stock value, the worst of all outputs."""
    stock_time: Timing
    dispatched_time: Timing
    frozen: FrozenSide | None = None
    """None where the workload does not say what its weights are."""

    @property
    def speedup(self) -> float:
        """Speedup over stock."""
        return self.stock_time.median / self.dispatched_time.median

    @property
    def report(self) -> Report:
        """Report of the workload's module (the largest, if several were compiled)."""
        return max(self.dispatched.reports, key=lambda report: report.instructions)


def compile_stock(workload: Workload) -> Compiled:
    """Compile as XLA does it; the pass must not be installed."""
    lowered = _lower(workload)
    begin = time.perf_counter()
    executable = lowered.compile()
    return Compiled(workload, executable, time.perf_counter() - begin, ())


def compile_dispatched(workload: Workload, **options: Any) -> Compiled:
    """Compile with the pass in place; `options` are those of `hlo_dispatch.install`."""
    import hlo_dispatch

    lowered = _lower(workload)
    with hlo_dispatch.enabled(**options):
        known = hlo_dispatch.reports()
        begin = time.perf_counter()
        executable = lowered.compile()
        seconds = time.perf_counter() - begin
        # By identity: only recent reports are kept, so positions move.
        reports = tuple(report for report in hlo_dispatch.reports() if not any(report is old for old in known))
    return Compiled(workload, executable, seconds, reports)


def frozen(workload: Workload, policy: str, **options: Any) -> tuple[Callable[[], Any], float]:
    """The workload with its weights frozen, called once, and how many seconds that took.

    Nothing is measured for it: the cost model decides regions without measurements.
    """
    import jax

    import hlo_dispatch

    weights, others = workload.arguments[: workload.weights], workload.arguments[workload.weights :]
    with hlo_dispatch.enabled(policy="stored" if policy == "measure" else policy, **options):
        begin = time.perf_counter()
        function = hlo_dispatch.freeze(workload.function, *weights)
        jax.block_until_ready(function(*others))
        return lambda: jax.block_until_ready(function(*others)), time.perf_counter() - begin


def compare(
    workload: Workload,
    *,
    seconds: float = 6.0,
    step: DemoProgress = lambda what, done: None,
    policy: str = "measure",
    **options: Any,
) -> SideBySide:
    """Compile both ways, and frozen if the workload has weights; check the results, time them in turns."""
    step("compiling with stock XLA", 0.0)
    stock = compile_stock(workload)
    step("compiling with hlo-dispatch", 0.0)
    dispatched = compile_dispatched(workload, policy=policy, **options)
    calls: dict[str, Callable[[], Any]] = {"stock": stock, "dispatched": dispatched}
    preparing = 0.0
    if workload.weights:
        step("freezing", 0.0)
        calls["frozen"], preparing = frozen(workload, policy, **options)
    step("comparing results", 0.0)
    expected = stock()
    differences = {name: relative_difference(expected, call()) for name, call in calls.items() if call is not stock}
    times = interleaved(calls, seconds=seconds, progress=lambda done: step("measuring in turns", done))
    side = FrozenSide(preparing, differences["frozen"], times["frozen"]) if workload.weights else None
    return SideBySide(workload, stock, dispatched, differences["dispatched"], times["stock"], times["dispatched"], side)


def relative_difference(expected: Any, actual: Any) -> float:
    """The largest absolute difference over the largest expected value, worst leaf; NaN if NaNs disagree."""
    import jax
    import numpy as np

    worst = 0.0
    for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        if left.size == 0:
            continue
        scale = np.max(np.abs(left)) or 1.0
        worst = float(np.maximum(worst, np.max(np.abs(left - right)) / scale))
    return worst


def _lower(workload: Workload) -> Any:
    import jax

    # A function of its own for each compilation: JAX remembers lowered and compiled modules by function.
    @wraps(workload.function)
    def fresh(*arguments: Any) -> Any:
        return workload.function(*arguments)

    return jax.jit(fresh).lower(*workload.arguments)
