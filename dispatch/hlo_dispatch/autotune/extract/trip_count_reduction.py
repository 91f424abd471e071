"""Trip-count reduction: the same program with few loop iterations, for whole-program trials.

A long program's loops are shortened, and a loop whose length depends on its inputs gets one: an iteration is the work
to compare, and how many there are changes nothing about which program is faster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.autotune.extract.loop_counter import count_iterations
from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto

ASSUMED_TRIPS = 64
"""Trip count of a loop of unknown length, where the time suffices for it."""
FEWEST_TRIPS = 16
"""Minimum trip count of a known loop: fewer iterations would time the loop's start."""
FEWEST_ASSUMED_TRIPS = 2
"""The same of a loop of unknown length, which cannot be run whole instead; two iterations that fill the time are long
ones."""


def fitting_trips(module: Module, seconds: float) -> int | None:
    """The largest trip limit with which one run of the module is estimated to take at most `seconds`.

    Returns:
        None where there is none, or where the module fits without a limit; a module with loops of unknown length has
        one in any case.
    """
    counts = [trip_count(loop) for loop in _loops(module)]
    run, longest = running_time(module), max((count for count in counts if count is not None), default=0)
    if None in counts:
        most, fewest = max(longest, ASSUMED_TRIPS), FEWEST_ASSUMED_TRIPS
    elif run is None or run <= seconds or longest <= FEWEST_TRIPS:
        return None
    else:
        most, fewest = max(longest // 2, FEWEST_TRIPS), FEWEST_TRIPS
    while True:
        shorter = running_time(with_trips(module, most))
        if shorter is not None and shorter <= seconds:
            return most
        if shorter is None or most <= fewest:
            return most if None in counts else None
        most = max(most // 2, fewest)


def with_trips(module: Module, most: int) -> Module:
    """A copy of the module with trip counts limited to `most`, those of loops of unknown length to ASSUMED_TRIPS, too.

    XLA:CPU runs a loop with a known trip count by that count, and does not evaluate its condition, except in a small
    call: there the loop's condition counts.
    """
    module = module.copy()
    for computation, is_small in module.control_flow_computations():
        for loop in _loops_in(computation):
            count = trip_count(loop)
            limit = min(most, ASSUMED_TRIPS) if count is None else most
            if (count is None or count > limit) and (
                not is_small or count_iterations(module, computation, loop, limit)
            ):
                _set_trip_count(module, loop.id, computation.id, limit)
    return module


def _set_trip_count(module: Module, loop: int, computation: int, count: int) -> None:
    proto = next(i for i in module.computations[computation].instructions[:] if i.id == loop)
    config = json.loads(proto.backend_config or b"{}")
    config["known_trip_count"] = {"n": str(count)}
    proto.backend_config = json.dumps(config, separators=(",", ":")).encode()


def _loops(module: Module) -> Iterator[InstructionProto]:
    for computation in module.proto.computations[:]:
        yield from _loops_in(computation)


def _loops_in(computation: ComputationProto) -> list[InstructionProto]:
    return [instruction for instruction in computation.instructions[:] if instruction.opcode == "while"]
