"""Events of executables: XLA's profiler records one for each execution of an instruction, by its name."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import bisect
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from hlo_dispatch.errors import HloDispatchError

_END = "end: "
_RUN = "hlo_dispatch run"


class NoTrace(HloDispatchError):
    """The profiler recorded nothing about the program."""

    exit_status = 1


@dataclass(frozen=True)
class Event:
    """One execution of an instruction; those in a loop's body have one for each trip."""

    module: str
    instruction: str
    begin: float
    """In nanoseconds."""
    end: float


@dataclass(frozen=True)
class RecordedRun:
    """One call."""

    seconds: float
    """Wall time."""
    events: list[Event]
    """Of every module that it executes."""


def recorded(call: Callable[[], object], runs: int, prepare: Callable[[], object] = lambda: None) -> list[RecordedRun]:
    """Record `runs` calls. A call must return when its work is done; `prepare` is called before each.

    Raises:
        NoTrace.
    """
    prepare()
    call()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # it slows calls down
    with tempfile.TemporaryDirectory(prefix="hlo_dispatch_trace_") as directory:
        with jax.profiler.trace(directory, profiler_options=options):
            for _ in range(runs):
                prepare()
                with jax.profiler.TraceAnnotation(_RUN):
                    call()
        files = sorted(Path(directory).rglob("*.xplane.pb"))
        if not files:
            raise NoTrace("jax.profiler wrote no trace")
        with warnings.catch_warnings():
            # jaxlib's own types; an error raised there would end the process.
            warnings.simplefilter("ignore", DeprecationWarning)
            found = _read(jax.profiler.ProfileData.from_file(str(files[-1])))
    if not any(run.events for run in found):
        raise NoTrace("jax.profiler's trace names no instruction of the program")
    return found


def instruction_seconds(call: Callable[[], object], runs: int) -> dict[str, float]:
    """Instruction → seconds in one run, a mean over `runs`; instructions that contain others include them.

    Raises:
        NoTrace.
    """
    totals: dict[str, float] = defaultdict(float)
    for run in recorded(call, runs):
        for event in run.events:
            totals[event.instruction] += (event.end - event.begin) * 1e-9
    return {name: total / runs for name, total in totals.items()}


def _read(data: Any) -> list[RecordedRun]:
    begun: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    ended: dict[str, list[float]] = defaultdict(list)
    runs: list[tuple[float, float]] = []
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                if event.name.startswith(_END):
                    ended[event.name.removeprefix(_END)].append(event.start_ns)
                elif event.name == _RUN:
                    runs.append((event.start_ns, event.duration_ns))
                elif (said := dict(event.stats)).get("hlo_op"):
                    module = str(said.get("hlo_module", ""))
                    begun[event.name].append((event.start_ns, event.duration_ns, module))
    runs.sort()
    found = [RecordedRun(duration * 1e-9, []) for _, duration in runs]
    begins = [start for start, _ in runs]
    for name, events in begun.items():
        # Marks of an end do not say which module's they are.
        events.sort()
        lengths = _lengths([event[:2] for event in events], sorted(ended[name]))
        for (at, _, module), length in zip(events, lengths, strict=True):
            number = bisect.bisect_right(begins, at) - 1
            if number >= 0 and at < sum(runs[number]):
                found[number].events.append(Event(module, name, at, at + length))
    return found


def _lengths(events: list[tuple[float, float]], ends: list[float]) -> list[float]:
    """Nanoseconds of each event; what goes on after its thunk has returned lasts until the mark of its end."""
    lengths = []
    for number, (start, duration) in enumerate(events):
        until = events[number + 1][0] if number + 1 < len(events) else float("inf")
        after = bisect.bisect_left(ends, start + duration)
        is_own = after < len(ends) and ends[after] < until
        lengths.append(ends[after] - start if is_own else duration)
    return lengths
