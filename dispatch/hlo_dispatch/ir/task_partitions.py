"""Task partitions of a created loop fusion over threads: XLA's parallel task assignment has already run."""

from __future__ import annotations

import json

from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape

# XLA:CPU's own cost model asks for this much output per task (ParallelTaskAssignment, min_cost_per_thread).
BYTES_PER_TASK = 256 * 1024
_FIELD = "outer_dimension_partitions"


def loop_backend_config(shape: Shape, threads: int) -> bytes:
    """The backend_config of a kLoop fusion with this result: its outer dimensions partitioned into tasks, or empty."""
    tasks = min(threads, shape.bytes // BYTES_PER_TASK)
    if tasks < 2:
        return b""
    partitions: list[str] = []
    remaining = tasks
    for number in reversed(shape.minor_to_major):
        count = min(remaining, shape.dimensions[number])
        partitions.append(str(count))
        remaining = -(-remaining // count)
        if remaining <= 1:
            break
    return json.dumps({_FIELD: partitions}, separators=(",", ":")).encode()


def is_partitioned(fusion: InstructionProto) -> bool:
    """Whether several tasks compute the fusion's result."""
    return _FIELD.encode() in fusion.backend_config
