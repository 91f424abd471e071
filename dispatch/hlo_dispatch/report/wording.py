"""Numbers in words, and a report in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_dispatch.report.values import Report


_SHOWN_SHARE = 0.05
"""A pass that took less of the whole is not named in a summary."""


def summary(report: Report) -> str:
    """One line: how much was dispatched and what the pass cost."""
    if report.candidates:
        count = f"{len(report.dispatched)} of {plural(len(report.candidates), 'region')} dispatched"
        if report.sequences:
            count += f" in {plural(report.calls, 'call')}"
    else:
        count = "no region that a kernel could take"
    shown = {name: took for name, took in report.stages.items() if took >= _SHOWN_SHARE * report.seconds}
    stages = ", ".join(f"{name} {duration(seconds)}" for name, seconds in shown.items())
    cost = f"pass {duration(report.seconds)}" + (f" ({stages})" if stages else "")
    return f"{report.module}: {count}; {plural(report.instructions, 'instruction')}; {cost}"


def duration(seconds: float) -> str:
    """`12 µs`, `3.4 ms`, `1.25 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s"


def plural(count: int, noun: str) -> str:
    """`1 region`, `1,234 regions`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """Bytes for a person: `12 B`, `3.4 kB`, `1.25 MB`."""
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in_unit = count / (1e3 if unit == "kB" else 1e6)
        if count_in_unit < 1000:
            return f"{count_in_unit:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"
