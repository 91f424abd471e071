"""Time by instruction of an executable: XLA's profiler records one event for each, by its name."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import bisect
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from hlo_dispatch.errors import HloDispatchError

_END = "end: "


class NoTrace(HloDispatchError):
    """The profiler recorded nothing about the program."""

    exit_status = 1


def instruction_seconds(call: Callable[[], object], runs: int) -> dict[str, float]:
    """Instruction → seconds in one run, a mean over `runs`; instructions that contain others include them.

    Raises:
        NoTrace.
    """
    call()
    with tempfile.TemporaryDirectory(prefix="hlo_dispatch_trace_") as directory:
        with jax.profiler.trace(directory):
            for _ in range(runs):
                call()
        files = sorted(Path(directory).rglob("*.xplane.pb"))
        if not files:
            raise NoTrace("jax.profiler wrote no trace")
        with warnings.catch_warnings():
            # jaxlib's own types; an error raised there would end the process.
            warnings.simplefilter("ignore", DeprecationWarning)
            totals = _read(jax.profiler.ProfileData.from_file(str(files[-1])))
    if not totals:
        raise NoTrace("jax.profiler's trace names no instruction of the program")
    return {name: total / runs for name, total in totals.items()}


def _read(data: Any) -> dict[str, float]:
    """Instruction → seconds of all its events."""
    begun: dict[str, list[tuple[float, float]]] = defaultdict(list)
    ended: dict[str, list[float]] = defaultdict(list)
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                if event.name.startswith(_END):
                    ended[event.name.removeprefix(_END)].append(event.start_ns)
                elif any(key == "hlo_op" for key, _ in event.stats):
                    begun[event.name].append((event.start_ns, event.duration_ns))
    return {name: sum(_lengths(sorted(events), sorted(ended[name]))) * 1e-9 for name, events in begun.items()}


def _lengths(events: list[tuple[float, float]], ends: list[float]) -> list[float]:
    """Nanoseconds of each event; what goes on after its thunk has returned lasts until the mark of its end."""
    lengths = []
    for number, (start, duration) in enumerate(events):
        until = events[number + 1][0] if number + 1 < len(events) else float("inf")
        after = bisect.bisect_left(ends, start + duration)
        is_own = after < len(ends) and ends[after] < until
        lengths.append(ends[after] - start if is_own else duration)
    return lengths
