"""Report values: the regions of one module, the decision for each, and the modules before and after.

Written by the pipeline, read by the command line, the demo, tests and notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hlo_dispatch.errors import Refusal


@dataclass  # not frozen: that assigns each field by a call, and a module has many of them
class Region:
    """One anchor op (a convolution, a dot, …) with its epilogue, and the decision for it."""

    name: str
    """The anchor op's instruction name in XLA's module."""
    computation: str
    """The computation that contains it (the fusion's caller if it is inside a fusion)."""
    opcode: str
    """The anchor op's HLO opcode."""
    formula: str
    """What the region computes, for a person: `relu(conv(x, w) + bias)`."""
    kernel: str | None
    """The selected kernel; None where XLA computes the region."""
    implementation: str | None
    """The vendor library's name of the implementation (`brgconv:avx512_core`)."""
    attributes: dict[str, Any]
    """The custom-call's attributes."""
    covered: tuple[str, ...]
    """Names of the instructions this region replaces."""
    op_name: str
    """The op name that the framework recorded for the user's program."""
    source: str
    """`file:line` of the user's program, or empty."""
    reason: str
    """Why this choice was made, in one sentence."""
    refusal: Refusal | None
    """Why no kernel was selected; None where one was."""
    shape: str
    """The region's result, for a person: `f32[1,112,112,64]`."""
    stopped_at: str = ""
    """The instruction at which the region's epilogue ended; empty where the value must be materialized."""
    stopped_because: str = ""
    """Why the epilogue ended there; with the nearest miss where the report was asked for details."""
    call: str = ""
    """Name of the custom-call that computes the region in the rewritten module."""
    saved: float | None = None
    """Seconds that the call saves, measured alone; None where that is not known."""
    entry: str = ""
    """The table entry (anchor, pattern or routine) that matched; empty where none did."""

    @property
    def dispatched(self) -> bool:
        """Does a vendor kernel compute this region?"""
        return self.kernel is not None

    @property
    def missed(self) -> bool:
        """Is this only the near miss of a pattern? There is nothing to dispatch then."""
        return self.refusal is not None and self.refusal.code == "near-miss"

    def with_call(self, name: str) -> Region:
        """This region, which another custom-call computes."""
        values: dict[str, Any] = vars(self) | {"call": name}
        return Region(**values)


@dataclass(frozen=True)
class StridedCall:
    """A kernel call after stride propagation: it computes no dead positions."""

    attributes: dict[str, Any]
    """The call's new attributes."""
    implementation: str
    shape: str
    """The new result's; empty where only the source changed."""


@dataclass(frozen=True)
class CallSequence:
    """A call group: several kernel calls as one custom-call (reports and kernels call it a sequence)."""

    name: str
    """The custom-call's name, which its regions have as their `call`."""
    computation: str
    calls: int
    inner: int
    """How many intermediate values it has."""
    bytes: int
    """Memory of the intermediate values and the members' scratch."""


@dataclass(frozen=True)
class PassRun:
    """One run of a pass."""

    name: str
    seconds: float
    changed: tuple[str, ...]
    """Names of the computations that it changed or added."""
    instructions: int
    """How many instructions the module had then."""


@dataclass(frozen=True)
class Report:
    """Report of one module; `str` is a table, and so is its notebook representation."""

    module: str
    """The module's name."""
    regions: tuple[Region, ...] = ()
    """Dispatched and left regions, in program order."""
    seconds: float = 0.0
    """Seconds of the whole pass."""
    passes: tuple[PassRun, ...] = ()
    """The passes that ran, in order, with parsing and serializing."""
    instructions: int = 0
    """How many instructions the module had."""
    saved: float | None = None
    """Seconds that a run of the module saves: measured as a whole or, where it was not, the sum of what was measured of
    its regions; None: nothing was."""
    sequences: tuple[CallSequence, ...] = ()
    """Of the rewritten module."""
    before: bytes | None = field(default=None, repr=False, compare=False)
    """The serialized module as it came in, where the report was asked for details."""
    after: bytes | None = field(default=None, repr=False, compare=False)
    """The rewritten serialized module; None: unchanged, or no details were asked for."""
    frozen_arguments: tuple[str, ...] = ()
    """Of a function of `hlo_dispatch.jit` that was explained: which arguments are or can be frozen, or why none."""
    failure: str = ""
    """A failure of the pass although the module was dispatched, in one sentence; empty: none."""

    @property
    def stages(self) -> dict[str, float]:
        """Seconds by pass, in the order in which they ran."""
        seconds: dict[str, float] = {}
        for run in self.passes:
            seconds[run.name] = seconds.get(run.name, 0.0) + run.seconds
        return seconds

    @property
    def dispatched(self) -> tuple[Region, ...]:
        """The regions that a vendor kernel computes."""
        return tuple(region for region in self.regions if region.dispatched)

    @property
    def calls(self) -> int:
        """Number of custom-calls that compute the dispatched regions; a sequence is one."""
        return len({region.call or region.name for region in self.dispatched})

    @property
    def candidates(self) -> tuple[Region, ...]:
        """All regions but the near misses of patterns."""
        return tuple(region for region in self.regions if not region.missed)

    @property
    def left(self) -> tuple[Region, ...]:
        """The regions that XLA computes, near misses among them."""
        return tuple(region for region in self.regions if not region.dispatched)

    def with_strided_calls(self, calls: Mapping[str, StridedCall]) -> Report:
        """This report after stride propagation.

        Args:
            calls: name of a changed call → its new attributes.
        """
        return (
            replace(self, regions=tuple(_with_strides(r, calls.get(r.call)) for r in self.regions)) if calls else self
        )

    def with_call_groups(self, sequences: Iterable[CallSequence], calls: Mapping[str, str]) -> Report:
        """This report after call grouping.

        Args:
            calls: name of a member → its sequence's name.
        """
        if not calls:
            return self
        regions = tuple(r.with_call(calls[r.call]) if r.call in calls else r for r in self.regions)
        return replace(self, regions=regions, sequences=(*self.sequences, *sequences))

    def __str__(self) -> str:
        from hlo_dispatch.report.content import report_content
        from hlo_dispatch.report.terminal import text_of

        return text_of(report_content(self))

    def _repr_html_(self) -> str:
        from hlo_dispatch.report.content import report_content
        from hlo_dispatch.report.html import html_of

        return html_of(report_content(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON (without the modules themselves)."""
        values = asdict(replace(self, before=None, after=None), dict_factory=_plain)
        return values | {"stages": self.stages}


def _with_strides(region: Region, now: StridedCall | None) -> Region:
    if now is None:
        return region
    note = f"; computed as {now.shape}: stride propagation, nothing reads the rest" if now.shape else ""
    return replace(region, attributes=now.attributes, implementation=now.implementation, reason=region.reason + note)


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {
        name: vars(value) if isinstance(value, Refusal) else value
        for name, value in fields
        if name not in ("before", "after")
    }


@dataclass(frozen=True)
class Group:
    """A row of a table: regions that differ only in name."""

    count: int
    formula: str
    shape: str
    kernel: str | None
    implementation: str | None
    reason: str
    """Empty for dispatched regions."""


def grouped(regions: Iterable[Region]) -> tuple[Group, ...]:
    """Count equal regions; first come, first listed."""
    counts: dict[tuple[str, str, str | None, str | None, str], int] = {}
    for region in regions:
        why = "" if region.dispatched else explanation(region)
        key = (region.formula, region.shape, region.kernel, region.implementation, why)
        counts[key] = counts.get(key, 0) + 1
    return tuple(Group(count, *key) for key, count in counts.items())


def explanation(region: Region) -> str:
    """Reason for the decision, without the instruction's name (so that equal cases group)."""
    if region.refusal is None or region.refusal.code == "policy":
        return region.reason
    return f"{region.refusal.code}: {region.refusal.sentence}"
