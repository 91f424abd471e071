"""Result of a soak test: the numbers of each process, and whether memory was level in the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.soak.supervise import Process, Soak

LEAST_SECONDS = 100.0
"""A shorter soak says nothing of memory: libraries, caches and thread stacks are still being filled."""
LEVEL_BYTES, LEVEL_SHARE = 48 << 20, 0.05
"""So much may a process grow in the second half, in bytes or in parts of its size: the allocator's own noise."""


def result(soak: Soak) -> dict[str, Any]:
    """Everything as plain values, ready for JSON; adds to the soak's problems what memory shows."""
    processes = [_process(soak, process) for process in soak.processes]
    for process in processes:
        if process["killed"] is None and soak.seconds >= LEAST_SECONDS and process["is_level"] is False:
            soak.problems.append(
                f"process {process['number']} grew by {process['growth'] / 1e6:.0f} MB in the second half"
            )
    return {
        "header": header(),
        "seconds": soak.seconds,
        "processes": processes,
        "killed": sum(process["killed"] is not None for process in processes),
        "done": sum(process["done"] for process in processes),
        "measured": sum(process["measured"] for process in processes),
        "rewritten": sum(process["rewritten"] for process in processes),
        "fresh_seconds": soak.fresh_seconds,
        "problems": soak.problems,
    }


def _process(soak: Soak, process: Process) -> dict[str, Any]:
    samples = process.samples()
    last = samples[-1] if samples else {}
    times = np.array([sample["time"] - soak.begun for sample in samples])
    sizes = np.array([float(sample["resident"]) for sample in samples])
    growth, is_level = _growth(soak, times, sizes)
    allocated = np.array([float(sample["allocated"]) for sample in samples])
    more_allocated, _ = _growth(soak, times, allocated)
    return {
        "number": process.number,
        "begun": process.begun,
        "killed": process.killed,
        "samples": [[round(t, 1), int(s)] for t, s in zip(times, sizes, strict=True)],
        "slope": growth / (soak.seconds / 2) if growth is not None else None,
        "growth": growth,
        "is_level": is_level,
        "allocated": last.get("allocated", 0),
        "allocated_slope": more_allocated / (soak.seconds / 2) if more_allocated is not None else None,
        **{name: last.get(name, 0) for name in ("done", "measured", "rewritten", "modules")},
    }


def _growth(soak: Soak, times: np.ndarray, sizes: np.ndarray) -> tuple[float | None, bool | None]:
    """Bytes by which a process grew in the second half, by a line through its samples; None where it came later."""
    late = (times >= soak.seconds / 2) & (times <= soak.seconds)
    if late.sum() < 5 or times[0] > soak.seconds / 4:
        return None, None
    slope, _ = np.polyfit(times[late], sizes[late], 1)
    growth = float(slope * soak.seconds / 2)
    return growth, growth <= max(LEVEL_BYTES, LEVEL_SHARE * float(sizes[late].mean()))


def sentences(found: dict[str, Any]) -> list[str]:
    """The summary, a line each."""
    lines = [
        f"{found['seconds'] / 60:.1f} minutes, {len(found['processes'])} processes of which {found['killed']} were "
        f"killed; {found['done']:,} programs compiled, run, checked and dropped, {found['rewritten']:,} of them "
        f"dispatched; {found['measured']:,} regions measured",
        f"a fresh process measures in {found['fresh_seconds']:.1f} s",
    ]
    for process in found["processes"]:
        if process["growth"] is not None and process["killed"] is None:
            lines.append(
                f"process {process['number']}: {process['samples'][-1][1] / 1e6:.0f} MB resident, "
                f"{process['slope'] * 60 / 1e6:+.1f} MB a minute in the second half; of these malloc has given out "
                f"{process['allocated'] / 1e6:.0f} MB, {process['allocated_slope'] * 60 / 1e6:+.1f} MB a minute"
            )
    return lines + [f"PROBLEM: {problem}" for problem in found["problems"]]
