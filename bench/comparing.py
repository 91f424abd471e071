"""Comparison of one program compiled in several ways, by interleaved timing."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from hlo_dispatch.bench.programs import BenchProgram
from hlo_dispatch.bench.verdict import ALWAYS, FIRST, LIMITS, SETTLED, STOCK, Result
from hlo_dispatch.demo.timing import interleaved
from hlo_dispatch.report import Report

NO_LIMIT = "3600"
"""Seconds of measuring, where it shall not end early."""
LONG_CALL = 0.3
"""Seconds; what lasts so long is called once a turn."""
FEW_TURNS = 5

Ways = Mapping[str, Callable[[], object]]
"""What is timed; a call returns when its work is done."""


def compare(kind: str, program: BenchProgram, seconds: float) -> Result:
    """Compile and time one program, stock and dispatched, `seconds` long."""
    import jax

    with jax.enable_x64(True) if program.needs_x64 else contextlib.nullcontext():
        return _compare(kind, program, seconds)


def _compare(kind: str, program: BenchProgram, seconds: float) -> Result:
    import hlo_dispatch

    begin = time.perf_counter()
    result = Result(kind, program.name)
    executables: dict[str, Any] = {}
    took: dict[str, float] = {}
    for way in {"models": (STOCK, FIRST, SETTLED), "training": (STOCK, ALWAYS, SETTLED)}.get(kind, (STOCK, SETTLED)):
        if way == SETTLED:
            os.environ["HLO_DISPATCH_MEASURE_SECONDS"] = NO_LIMIT
        policy = "always" if way == ALWAYS else "measure"
        with contextlib.nullcontext() if way == STOCK else hlo_dispatch.enabled(policy=policy):
            # From one line for all of them: a compiled program says where it was compiled from.
            executables[way], took[way] = compiled(program)
    result.compile_more = took[FIRST if FIRST in took else SETTLED] - took[STOCK]
    texts = {way: executable.as_text() for way, executable in executables.items()}
    result.calls = {way: kernel_calls(text) for way, text in texts.items() if way not in (STOCK, ALWAYS)}
    result.is_unchanged = len(set(texts.values())) == 1
    time_all(result, {way: blocking(executable, program.arguments) for way, executable in executables.items()}, seconds)
    result.spent = time.perf_counter() - begin
    return result


def compiled(program: BenchProgram) -> tuple[Any, float]:
    """The executable, and the seconds that XLA took."""
    import jax

    lowered = jax.jit(lambda *arguments: program.function(*arguments)).lower(*program.arguments)
    begin = time.perf_counter()
    return lowered.compile(), time.perf_counter() - begin


@contextlib.contextmanager
def reporting(policy: str) -> Generator[list[Report]]:
    """A policy while it is entered; the list has the reports of what was compiled meanwhile, afterwards."""
    import hlo_dispatch

    found: list[Report] = []
    # By identity: only recent reports are kept, so positions move.
    before = hlo_dispatch.reports()
    with hlo_dispatch.enabled(policy=policy):
        yield found
    found += [report for report in hlo_dispatch.reports() if not any(report is old for old in before)]


def kernel_calls(text: str) -> int:
    """Kernel calls in a compiled program."""
    return text.count('custom_call_target="hlo_dispatch.')


def blocking(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], object]:
    """A call that returns when its work is done."""
    import jax

    return lambda: jax.block_until_ready(function(*arguments))


def time_all(result: Result, ways: Ways, seconds: float) -> None:
    """Put times and ratios into the result; what is below the limit is measured twice more, and the middle counts."""
    limit = LIMITS[result.kind]
    result.seconds = first = _times(ways, seconds)
    reference = result.reference
    others = [way for way in result.calls if way != reference]
    result.seconds = {way: first[way] for way in ways if way not in others}
    for way in others:
        # Equal programs are not timed again: what differs is the machine. Of tiny ones just this is to be shown.
        run, ratio = first, first[reference] / first[way]
        if (result.is_another(way) and ratio < limit) or (result.kind == "tiny" and not limit <= ratio <= 2 - limit):
            both = {name: ways[name] for name in (way, reference)}
            runs = [first, *(_times(both, 2 * seconds) for _ in range(2))]
            run = sorted(runs, key=lambda run: run[reference] / run[way])[1]
        result.seconds[way], result.ratios[way] = run[way], run[reference] / run[way]


def _times(ways: Ways, seconds: float) -> dict[str, float]:
    """Way → median seconds of a call."""
    first = next(iter(ways.values()))
    first()
    begin = time.perf_counter()
    first()
    if time.perf_counter() - begin < LONG_CALL:
        return {way: timing.median for way, timing in interleaved(ways, seconds=seconds).items()}
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(FEW_TURNS):
        for way in list(ways)[:: 1 if turn % 2 else -1]:
            begin = time.perf_counter()
            ways[way]()
            samples[way].append(time.perf_counter() - begin)
    return {way: statistics.median(values) for way, values in samples.items()}
