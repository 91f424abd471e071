"""A whole program, stock against dispatched: what its regions cannot tell one by one.

Regions that share fusions are entangled: dispatching one takes work out of its neighbours' fusions that alone it
does not show. A kernel between two of XLA's parallel loops costs more than between two other kernels. And however
well each region was measured, it is the program that must not become slower. So where a program can be run on its
own, it is: once before its regions are measured (as the heuristic has it, the most valuable single measurement
there is), and once when all of them are known.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.shape import Shape, shape_of
from hlo_dispatch.policy.executable import Executable, to_device
from hlo_dispatch.policy.inputs import random_inputs
from hlo_dispatch.policy.measure import Unclear, Unmeasurable
from hlo_dispatch.policy.measured import STOCK, Measured
from hlo_dispatch.policy.race import PATIENCE, race
from hlo_dispatch.policy.running_time import calls_libraries, running_time
from hlo_dispatch.policy.validation import is_finite

WHOLE = "all of them"
"""What is measured instead of one kernel."""
PROGRAM = "the whole program"
"""What is being measured, for people."""
SECONDS = 3.0
"""Of timing, when all regions are known: once for a program, between variants that may be 15 % apart."""
QUICK_SECONDS = 0.5
"""Of timing, before they are."""
LARGEST_PROGRAM = 2 << 30
"""Bytes of inputs; so much is allocated for a moment."""
LEAST_GAIN = 0.01
"""In parts of stock's time, besides the noise: a program that gains less is left to stock."""
# Each contestant is warmed up and runs a few turns.
_RUNS_EACH = 5
# ResNet50 takes 0.1 to 0.2 ms.
_COMPILE_SECONDS_PER_INSTRUCTION = 0.15e-3


class OutOfTime(Unclear):
    """There is not enough time left; another compile may have it."""


def expected_seconds(module: Module, variants: int) -> float | None:
    """What compiling all and running stock once takes, on the safe side; None where random inputs will not do.

    After that run it is known better than anybody could say now.
    """
    signature = module.entry.program_shape
    results = signature.result.tuple_shapes or (signature.result,)
    shapes = [shape_of(shape) for shape in (*signature.parameters, *results)]
    if any(not s.is_array or s.is_dynamic for s in shapes) or sum(s.bytes for s in shapes) > LARGEST_PROGRAM:
        return None
    run = running_time(module)
    if run is None:
        return None
    instructions = sum(len(computation.instructions) for computation in module.proto.computations)
    return (1 + variants) * _COMPILE_SECONDS_PER_INSTRUCTION * instructions + run


def compare(
    stock: bytes, variants: Mapping[str, bytes], *, left: float = float("inf"), is_final: bool = True
) -> Measured:
    """Time whole programs.

    Args:
        stock: the optimized module as XLA made it.
        variants: what they are called → the module with its kernel calls; the one expected to win first.
        left: seconds that it may take.
        is_final: whether all regions are known.

    Returns:
        the chosen variant, or "stock".

    Raises:
        Unmeasurable: the program cannot be run on random inputs.
        OutOfTime: it takes too long.
    """
    module = Module.from_bytes(stock)
    about = {"thorough": is_final, "formula": f"all of {module.name}", "kernel": WHOLE}
    if not variants:
        return Measured(STOCK, {STOCK: 0.0}, **about)
    expected = expected_seconds(module, len(variants))
    if expected is None:
        raise Unmeasurable("what the program does depends on its inputs")
    if expected > left:
        raise OutOfTime
    shapes: Sequence[Shape] = [shape_of(shape) for shape in module.entry.program_shape.parameters]
    arguments = to_device(random_inputs(module, shapes, 1))
    begin = time.perf_counter()
    programs = _in_time(stock, variants, arguments, left, may_fail=calls_libraries(module))
    left -= time.perf_counter() - begin
    times = race(programs, seconds=min(SECONDS if is_final else QUICK_SECONDS, max(left, 0.0) / PATIENCE))
    reference = times[0].seconds
    seconds = {STOCK: reference} | dict(zip(variants, (time.seconds for time in times[1:]), strict=True))
    found = dict(zip(variants, times[1:], strict=True))
    best = max(found, key=lambda name: found[name].gain)
    # Of the first variant most is known; another one has to be better by more than noise.
    first = next(iter(found))
    if found[best].gain < found[first].gain + found[best].error + LEAST_GAIN * reference:
        best = first
    wins = found[best].gain > found[best].error + LEAST_GAIN * reference
    return Measured(best if wins else STOCK, seconds, found[best].gain if wins else 0.0, found[best].error, **about)


def _in_time(
    stock: bytes, variants: Mapping[str, bytes], arguments: Sequence[Any], left: float, *, may_fail: bool
) -> list[_Program]:
    """All of them compiled, unless stock alone shows that this would take too long."""
    begin = time.perf_counter()
    programs = [_Program(Executable(_plain(stock)), arguments)]
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    results = programs[0]()
    run = time.perf_counter() - begin
    if may_fail and not is_finite(results):
        # What fails ends early, and says nothing of how long it takes.
        raise Unmeasurable("its library calls fail on random inputs")
    if (1 + len(variants)) * (compiled + _RUNS_EACH * run) > left:
        raise OutOfTime
    return programs + [_Program(Executable(_plain(variant)), arguments) for variant in variants.values()]


def _plain(serialized: bytes) -> bytes:
    """The module without donated inputs: they are used again."""
    module = Module.from_bytes(serialized)
    module.proto.ClearField("input_output_alias")
    module.proto.ClearField("schedule")
    return module.to_bytes()


class _Program:
    def __init__(self, executable: Executable, arguments: Sequence[Any]) -> None:
        self._executable, self._arguments = executable, arguments

    def __call__(self) -> list[Any]:
        return self._executable(self._arguments)
