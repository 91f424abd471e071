"""Replica consensus: with jax.distributed, process 0 decides for a program, and the other processes follow.

Processes that measure separately may choose different kernels, whose results differ by rounding: the replicas of a
model's parameters would diverge. So for a program that spans processes, process 0 publishes the measurements that its
decisions depend on, and the others decide by these alone and measure nothing. A program of a single process is not
affected. Publication uses the key-value store of jax.distributed.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import collections
import hashlib
import json
import logging
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.ir.module import Module
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock
from hlo_dispatch.report import Report
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.decide import MEASURING
from hlo_dispatch.selection.measurements import KnownMeasurements, Measurement

WAIT = 60.0
"""Seconds of waiting for process 0; after one timeout a process does not wait again."""
_SLICE = 500
"""Milliseconds of one request, between which Ctrl-C works."""
_logger = logging.getLogger("hlo_dispatch")
_lock = ForkSafeLock()
_times: collections.Counter[str] = collections.Counter()
"""Number of compiles of each program in this process, which is equal in all processes."""
_has_given_up = False


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of one distributed program."""

    client: Any
    """Client of jax.distributed's service."""
    process: int

    def put(self, key: str, values: Mapping[str, Any]) -> None:
        self.client.key_value_set_bytes(key, zlib.compress(json.dumps(values).encode()))

    def get(self, key: str, seconds: float) -> dict[str, Any] | None:
        """Get a published value; None after the timeout."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return json.loads(zlib.decompress(self.client.blocking_key_value_get_bytes(key, _SLICE)))
            except Exception as error:  # jaxlib's exception
                if "DEADLINE_EXCEEDED" not in str(error) or time.monotonic() > deadline:
                    _logger.debug("nothing was published for %s: %s", key, error)
                    return None

    def receive(self, key: str) -> dict[str, Any] | None:
        """Wait for what process 0 publishes; None after a timeout, which only the first one waits for."""
        global _has_given_up
        published = self.get(key, 0.0 if _has_given_up else WAIT)
        if published is None and not _has_given_up:
            _has_given_up = True
            _logger.warning(
                "process 0 did not say in %g s which kernels a program takes, so process %d decides itself and waits "
                "no more: replicas may differ by rounding. With one store for all and HLO_DISPATCH_POLICY=stored they "
                "do not.",
                WAIT,
                self.process,
            )
        return published

    def runs(self, module: Module) -> bool:
        """Whether the module also runs on devices of other processes."""
        import jax

        own = {device.id for device in jax.local_devices(backend="cpu")}
        assigned = module.proto.device_assignment.computation_devices
        return any(number not in own for computation in assigned for number in computation.replica_device_ids)


def this_group() -> ProcessGroup | None:
    """The processes of this distributed program; None: there is only one."""
    try:
        from jax._src import distributed

        state = distributed.global_state
        is_alone = state.client is None or (state.num_processes or 1) < 2
        return None if is_alone else ProcessGroup(state.client, state.process_id)
    except (ImportError, AttributeError):
        return None  # a jax without it: each process decides for itself


def run(
    pipeline: Pipeline, serialized: bytes, *, details: bool, find_group: Callable[[], ProcessGroup | None] = this_group
) -> tuple[bytes | None, Report]:
    """Run the pass on one module; for a program of several processes, as process 0 decides."""
    group = find_group() if pipeline.policy in MEASURING else None
    if group is None or not group.runs(module := Module.from_bytes(serialized)):
        return pipeline.run(serialized, details=details)
    key = _key(module, pipeline)
    if group.process == 0:
        return _decide_and_publish(group, key, pipeline, serialized, details)
    return _follow_process_0(group, key, pipeline, serialized, details)


def _decide_and_publish(
    group: ProcessGroup, key: str, pipeline: Pipeline, serialized: bytes, details: bool
) -> tuple[bytes | None, Report]:
    """Process 0: decide, and publish the measurements that the decisions depend on."""
    consulted = _AnswerRecorder(pipeline.knowledge)
    published: dict[str, Any] = {"stock": True}
    try:
        result = replace(pipeline, knowledge=consulted).run(serialized, details=details)
        known = {region: measured.to_dict() for region, measured in consulted.answers.items() if measured is not None}
        published = {"stock": False, "context": this_context().fingerprint, "known": known}
    finally:
        # Where the pass fails the module is stock XLA's in every process.
        group.put(key, published)
    return result


def _follow_process_0(
    group: ProcessGroup, key: str, pipeline: Pipeline, serialized: bytes, details: bool
) -> tuple[bytes | None, Report]:
    """Other processes: decide by the published measurements."""
    published = group.receive(key)
    if published is not None and published["stock"]:
        return Pipeline.make(pipeline.table, "never", pipeline.machine).run(serialized, details=details)
    if published is None or published["context"] != this_context().fingerprint:
        # Another kind of machine computes other bits in any case.
        return pipeline.run(serialized, details=details)
    knowledge = KnownMeasurements(
        {region: Measurement.from_dict(values) for region, values in published["known"].items()}
    )
    return replace(pipeline, knowledge=knowledge, make_measurer=None).run(serialized, details=details)


class _AnswerRecorder(KnownMeasurements):
    """Recorder of lookups and their latest answers."""

    def __init__(self, knowledge: KnownMeasurements) -> None:
        super().__init__()
        self._knowledge = knowledge
        self.answers: dict[str, Measurement | None] = {}

    def get(self, region: str) -> Measurement | None:
        answer = self.answers[region] = self._knowledge.get(region)
        return answer


def _key(module: Module, pipeline: Pipeline) -> str:
    """Key of a compile, equal in all processes."""
    entry = Digests(module).of_computation(module.entry.id).hex()
    digest = hashlib.sha256(f"{pipeline.table.fingerprint} {pipeline.policy} {entry}".encode()).hexdigest()
    with _lock:
        _times[digest] += 1
        return f"hlo_dispatch/{digest}/{_times[digest]}"
