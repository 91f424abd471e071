"""Tables of time by kind: a column for each program, the sum beside the wall time, and the largest instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hlo_dispatch.bench.instruction_kinds import KINDS
from hlo_dispatch.report.content import TextTable
from hlo_dispatch.report.wording import duration

_SHOWN = 12


def kinds_content(profiles: Mapping[str, Mapping[str, Any]]) -> Iterator[TextTable | str]:
    """The table of kinds, and a sentence that says what the numbers are; profiles are `TimeByKind.to_dict`'s."""
    sums = {name: sum(profile["seconds"].values()) for name, profile in profiles.items()}
    rows = [
        (kind, *(_with_share(profile["seconds"].get(kind, 0.0), sums[name]) for name, profile in profiles.items()))
        for kind in KINDS
        if any(kind in profile["seconds"] for profile in profiles.values())
    ]
    rows.append(("sum", *map(_milliseconds, sums.values())))
    rows.append(("wall, recorded", *(_milliseconds(profile["recorded"]) for profile in profiles.values())))
    rows.append(("wall", *(_milliseconds(profile["wall"]) for profile in profiles.values())))
    yield TextTable(("kind", *profiles), tuple(rows))
    largest = max(abs(sums[name] / profile["recorded"] - 1) for name, profile in profiles.items())
    yield (
        "Milliseconds of the fastest recorded run, and shares of their sum: executions of instructions, which XLA's "
        "profiler records, those of a loop's body once for each trip. "
        f"Sums differ by at most {largest:.0%} from that run's wall time; the rest is launching, and between "
        "instructions. The last line is the fastest run's that was not recorded."
    )


def instructions_content(profile: Mapping[str, Any]) -> Iterator[TextTable | str]:
    """The instructions that take most of one profile."""
    whole = sum(profile["seconds"].values())
    rows = [
        (
            one["name"], one["kind"], one["computed_by"], f"{one['trips']:,}", duration(one["seconds"]),
            f"{one['seconds'] / whole:4.0%}",
        )
        for one in profile["instructions"][:_SHOWN]
    ]  # fmt: skip
    yield TextTable(("instruction", "kind", "computed by", "executions", "time", "of the sum"), tuple(rows))


def _with_share(seconds: float, whole: float) -> str:
    return f"{1e3 * seconds:9.3f} {seconds / whole:4.0%}" if seconds else f"{'':9}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:9.3f}"
