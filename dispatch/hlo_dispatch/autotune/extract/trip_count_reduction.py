"""Trip-count reduction: a program with the same loops, each run fewer times, for trials of programs that run long."""

from __future__ import annotations

import json
from collections.abc import Iterator

from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto

FEWEST_TRIPS = 16
"""Fewer would time what a loop's first iterations cost, and not the loop."""


def fitting_trips(module: Module, seconds: float) -> int | None:
    """The most trips of a loop with which one run of the module is expected to take no longer.

    Returns:
        None where it is none, or where the module fits as it is.
    """
    run = running_time(module)
    most = max((trip_count(loop) or 0 for loop in _loops(module)), default=0)
    if run is None or run <= seconds:
        return None
    while most > FEWEST_TRIPS:
        most = max(most // 2, FEWEST_TRIPS)
        shorter = running_time(Module.from_bytes(with_trips(module.to_bytes(), most)))
        if shorter is not None and shorter <= seconds:
            return most
    return None


def with_trips(serialized: bytes, most: int) -> bytes:
    """The module, none of whose loops with a known trip count runs more often.

    XLA:CPU runs a loop whose trip count is known by that count; its condition is not asked.
    """
    module = Module.from_bytes(serialized)
    for loop in _loops(module):
        count = trip_count(loop)
        if count is not None and count > most:
            config = json.loads(loop.backend_config)
            config["known_trip_count"]["n"] = str(most)
            loop.backend_config = json.dumps(config, separators=(",", ":")).encode()
    return module.to_bytes()


def _loops(module: Module) -> Iterator[InstructionProto]:
    for computation in module.proto.computations[:]:
        yield from (i for i in computation.instructions[:] if i.opcode == "while")
