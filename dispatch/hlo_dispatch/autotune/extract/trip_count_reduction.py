"""Trip-count reduction: the same program with fewer loop iterations, for whole-program trials of long programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto

FEWEST_TRIPS = 16
"""Minimum trip count: fewer iterations would time the loop's start."""


def fitting_trips(module: Module, seconds: float) -> int | None:
    """The largest trip limit with which one run of the module is estimated to take at most `seconds`.

    Returns:
        None where there is none, or where the module fits without a limit.
    """
    run = running_time(module)
    most = max((trip_count(loop) or 0 for loop in _loops(module)), default=0)
    if run is None or run <= seconds:
        return None
    while most > FEWEST_TRIPS:
        most = max(most // 2, FEWEST_TRIPS)
        shorter = running_time(with_trips(module, most))
        if shorter is not None and shorter <= seconds:
            return most
    return None


def with_trips(module: Module, most: int) -> Module:
    """A copy of the module with known trip counts limited to `most`.

    XLA:CPU runs a loop with a known trip count by that count, and does not evaluate its condition.
    """
    module = module.copy()
    for loop in _loops(module):
        count = trip_count(loop)
        if count is not None and count > most:
            config = json.loads(loop.backend_config)
            config["known_trip_count"]["n"] = str(most)
            loop.backend_config = json.dumps(config, separators=(",", ":")).encode()
    return module


def _loops(module: Module) -> Iterator[InstructionProto]:
    for computation in module.proto.computations[:]:
        yield from (i for i in computation.instructions[:] if i.opcode == "while")
