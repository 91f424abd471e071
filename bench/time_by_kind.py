"""Time of a run by kind of instruction: products, slices, updates of buffers, attention, and so on.

The run may be a jitted function's, a frozen one's, or anything that runs executables. Events are XLA's profiler's, one
for each execution of an instruction, so that a loop's body counts once for each trip. What runs at the same time shares
that time, so the sum is at most the wall time; what is missing from it is XLA's and Python's own.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from hlo_dispatch.bench.instruction_kinds import KINDS, REST, instruction_kinds, kernel_kind
from hlo_dispatch.bench.kinds_view import instructions_content, kinds_content
from hlo_dispatch.bench.member_shares import member_shares
from hlo_dispatch.bench.thunks import Event, recorded
from hlo_dispatch.ir.kernel_call import KernelCall, is_kernel_call
from hlo_dispatch.ir.module import Module, is_small_call
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.report.terminal import text_of

_HOLDERS = ("while", "conditional", "call")
_FEWEST = 5


@dataclass(frozen=True)
class InstructionTime:
    """One instruction of one module, or one kernel of its call group."""

    name: str
    kind: str
    computed_by: str
    """A kernel's target, or the opcode."""
    trips: int
    """Executions."""
    seconds: float
    """Of all of them."""


@dataclass(frozen=True)
class TimeByKind:
    """Seconds of one run."""

    wall: float
    """Of the fastest run of those that are not recorded."""
    recorded: float
    """Of the fastest that is recorded, which all other numbers are of."""
    seconds: dict[str, float]
    """Kind → seconds."""
    instructions: tuple[InstructionTime, ...]
    """Largest first."""

    @property
    def total(self) -> float:
        """Sum over all kinds."""
        return sum(self.seconds.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        profile = self.to_dict()
        return text_of([*kinds_content({"ms": profile}), *instructions_content(profile)])


def profile(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> TimeByKind:
    """Run `fn(*args, **kwargs)` again and again, and say what kinds of instructions take its time.

    Printed, what is returned is a table. The function may be jitted, frozen or loaded, or run several executables; what
    has to be compiled is compiled before anything is measured. Arguments that it donates are copied for each run.

    Raises:
        NoTrace: the function runs nothing that XLA's profiler sees.
    """
    leaves, tree = jax.tree.flatten((args, kwargs))
    kept = [np.array(leaf) if _is_plain(leaf) else None for leaf in leaves]
    jax.block_until_ready(fn(*args, **kwargs))
    donated = [n for n, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) and leaf.is_deleted()]

    def prepare() -> None:
        for number in donated:
            leaves[number] = jax.device_put(kept[number], may_alias=False)
        jax.block_until_ready(leaves)

    def call() -> None:
        again, named = jax.tree.unflatten(tree, leaves)
        jax.block_until_ready(fn(*again, **named))

    return time_by_kind(call, prepare)


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def time_by_kind(
    call: Callable[[], object],
    prepare: Callable[[], object] = lambda: None,
    *,
    runs: int = 5,
    seconds: float = 1.0,
) -> TimeByKind:
    """Measure and record a call that returns when its work is done.

    Args:
        prepare: is called before each run, and not measured.
        runs: how many are recorded.
        seconds: time for measuring runs that are not.

    Raises:
        NoTrace: the profiler recorded nothing.
    """
    samples: list[float] = []
    start = time.perf_counter()
    while len(samples) < _FEWEST or time.perf_counter() - start < seconds:
        prepare()
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    fastest = min((run for run in recorded(call, runs, prepare) if run.events), key=lambda run: run.seconds)
    instructions = _instruction_times(fastest.events)
    by_kind = dict.fromkeys(KINDS, 0.0)
    for one in instructions:
        by_kind[one.kind] += one.seconds
    return TimeByKind(
        wall=min(samples),
        recorded=fastest.seconds,
        seconds={kind: spent for kind, spent in by_kind.items() if spent},
        instructions=tuple(sorted(instructions, key=lambda one: -one.seconds)),
    )


def _instruction_times(events: Sequence[Event]) -> list[InstructionTime]:
    modules = _modules_of(events)
    kinds = {name: instruction_kinds(module) for name, module in modules.items()}
    instructions = {
        (name, instruction.name): instruction
        for name, module in modules.items()
        for computation in module.proto.computations[:]
        for instruction in computation.instructions[:]
    }
    leaves = [event for event in events if not _is_holder(instructions.get((event.module, event.instruction)))]
    executions = Counter((event.module, event.instruction) for event in leaves)
    found: list[InstructionTime] = []
    for key, nanoseconds in shared_nanoseconds(leaves).items():
        module, name = key
        kind = kinds.get(module, {}).get(name, REST)
        found += _by_member(name, kind, instructions.get(key), executions[key], nanoseconds * 1e-9)
    return found


def _modules_of(events: Sequence[Event]) -> dict[str, Module]:
    """Name → module of the live executable with most of the recorded instructions; names may repeat."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for event in events:
        wanted[event.module].add(event.instruction)
    found: dict[str, tuple[int, Module]] = {}
    for executable in jax.local_devices(backend="cpu")[0].client.live_executables():
        for stored in executable.hlo_modules():
            names = wanted.get(stored.name)
            if names is None:
                continue
            module = Module.from_bytes(stored.as_serialized_hlo_module_proto())
            known = sum(i.name in names for i in module.instructions)
            if known > found.get(stored.name, (-1, module))[0]:
                found[stored.name] = known, module
    return {name: module for name, (_, module) in found.items()}


def _is_holder(instruction: InstructionProto | None) -> bool:
    """Whether events of other instructions lie inside of its own; a small call is one kernel."""
    return instruction is not None and instruction.opcode in _HOLDERS and not is_small_call(instruction)


def shared_nanoseconds(events: Sequence[Event]) -> dict[tuple[str, str], float]:
    """(module, instruction) → nanoseconds, each instant shared among the events that contain it."""
    marks = sorted(
        [(event.begin, 1, number) for number, event in enumerate(events)]
        + [(event.end, 0, number) for number, event in enumerate(events)]
    )
    taken: dict[tuple[str, str], float] = defaultdict(float)
    running: set[int] = set()
    before = 0.0
    for at, is_begin, number in marks:
        for other in running:
            taken[events[other].module, events[other].instruction] += (at - before) / len(running)
        before = at
        if is_begin:
            running.add(number)
        else:
            running.discard(number)
    return taken


def _by_member(
    name: str, kind: str, instruction: InstructionProto | None, trips: int, seconds: float
) -> list[InstructionTime]:
    """The instruction's time; a call group's, shared among the kernels of its members."""
    if instruction is None or not is_kernel_call(instruction):
        return [InstructionTime(name, kind, instruction.opcode if instruction is not None else "", trips, seconds)]
    call = KernelCall.read(instruction)
    shares = member_shares(call) if "members" in call.attributes else {}
    return [
        InstructionTime(name, kernel_kind(target), target, trips * members, seconds * share)
        for target, (members, share) in shares.items()
    ] or [InstructionTime(name, kind, call.target, trips, seconds)]
