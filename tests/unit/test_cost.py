"""Run time of the pipeline grows linearly: ten times the instructions take about ten times the time."""

from __future__ import annotations

import time

import pytest

from hlo_dispatch.api import pipeline
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.report import Report
from repeated import block, optimized, repeated, step

SIZE = 3_000
"""Instructions of the smaller module."""
MOST = 2.0
"""How far from proportional: caches run out, and allocations get dearer."""


def seconds(module: bytes, runs: int) -> tuple[float, Report]:
    """Processor time of the pass, the best of some; plans are asked for before. And what it did.

    What another process does on the other processor is not in it, so this test need not be alone.
    """
    rewriting = pipeline((), "always")
    spent, report = [], Report("none")
    for _ in range(runs):
        start = time.process_time()
        _, report = rewriting.run(module)
        spent.append(time.process_time() - start)
    return min(spent), report


@pytest.mark.parametrize("function", [block, step], ids=["inference", "training step with donated weights"])
def test_the_pass_is_proportional(function) -> None:
    once = optimized(function)
    small, large = repeated(once, SIZE), repeated(once, 10 * SIZE)
    result, report = pipeline((), "always").run(small)
    assert result is not None
    verify(Module.from_bytes(result))
    copies = len(report.dispatched)
    assert abs(report.instructions - SIZE) < SIZE // 10
    (short, _), (long, whole) = seconds(small, 4), seconds(large, 2)
    ratio = whole.instructions / report.instructions
    assert len(whole.dispatched) == pytest.approx(copies * ratio, rel=0.02)
    assert long <= MOST * ratio * short, f"{long:.2f} s for {ratio:.1f} times what takes {short:.3f} s"
