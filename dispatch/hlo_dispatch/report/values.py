"""What the pass saw in one module and what it did about it, as plain values.

Written by the rewriter, read by everybody (the command line, the demo, tests, a notebook).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hlo_dispatch.errors import Refusal


@dataclass(frozen=True)
class Region:
    """One anchor (a convolution, a dot, …) with the epilogue that was found behind it."""

    name: str
    """The anchor's instruction name in the module as XLA gave it to us."""
    computation: str
    """The computation that holds it (the fusion's caller if it sat inside a fusion)."""
    opcode: str
    """The anchor's HLO opcode."""
    formula: str
    """What the region computes, for a person: `relu(conv(x, w) + bias)`."""
    kernel: str | None
    """The kernel it was bound to; None when it was left to XLA."""
    implementation: str | None
    """The vendor library's own name of what will run (`brgconv:avx512_core`)."""
    attributes: dict[str, Any]
    """The kernel call's attributes, as they travel in the custom-call."""
    covered: tuple[str, ...]
    """Names of the instructions this region replaces."""
    op_name: str
    """Where it comes from in the user's program, as the framework named it."""
    source: str
    """`file:line` of the user's program, or empty."""
    reason: str
    """Why this choice was made, in one sentence."""
    refusal: Refusal | None
    """Why no kernel took it; None when one did."""
    shape: str
    """The region's result, for a person: `f32[1,112,112,64]`."""
    stopped_at: str = ""
    """The instruction at which the region's epilogue ended; empty where the value has to be in memory."""
    stopped_because: str = ""
    """Why the epilogue ended there; with the nearest miss where the report was asked for details."""
    call: str = ""
    """Name of the custom-call that computes the region in the rewritten module."""
    saved: float | None = None
    """Seconds that the call saves, measured alone; None where that is not known."""
    entry: str = ""
    """The table's anchor, pattern or routine that it was matched by; empty where no entry took it."""

    @property
    def dispatched(self) -> bool:
        """Does a vendor kernel compute this region?"""
        return self.kernel is not None

    @property
    def missed(self) -> bool:
        """Is this only where a pattern that matched nowhere came closest? There is nothing to dispatch then."""
        return self.refusal is not None and self.refusal.code == "near-miss"


@dataclass(frozen=True)
class Thinned:
    """What became of a kernel call when positions that nothing reads were left out."""

    attributes: dict[str, Any]
    """The call's, now."""
    implementation: str
    shape: str
    """Its result's; empty where the call computes all that it did, and only its source is smaller."""


@dataclass(frozen=True)
class CallSequence:
    """Several kernel calls that are one custom-call."""

    name: str
    """The custom-call's, which its regions have as their `call`."""
    computation: str
    calls: int
    inner: int
    """How many values only its members see."""
    bytes: int
    """The memory those lie in, together with what the members work in."""


@dataclass(frozen=True)
class Report:
    """Everything the pass can say about one module; `str` is a table, and so is what a notebook shows."""

    module: str
    """The module's name."""
    regions: tuple[Region, ...] = ()
    """Dispatched and left regions, in program order."""
    seconds: float = 0.0
    """What the whole pass took."""
    stages: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds by stage of the pass, in the order in which they ran."""
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
    """The serialized module as the pass left it; None: unchanged, or no details were asked for."""
    failure: str = ""
    """What of ours failed although the module was dispatched, with the error, in one sentence; empty: nothing did."""

    @property
    def dispatched(self) -> tuple[Region, ...]:
        """The regions that a vendor kernel computes."""
        return tuple(region for region in self.regions if region.dispatched)

    @property
    def calls(self) -> int:
        """How many custom-calls compute the dispatched regions; a sequence is one, whatever else it holds."""
        return len({region.call or region.name for region in self.dispatched})

    @property
    def candidates(self) -> tuple[Region, ...]:
        """The regions that a kernel could have taken, and may have: all but the patterns' near misses."""
        return tuple(region for region in self.regions if not region.missed)

    @property
    def left(self) -> tuple[Region, ...]:
        """The regions that stay as XLA made them, near misses among them."""
        return tuple(region for region in self.regions if not region.dispatched)

    def thinned(self, calls: Mapping[str, Thinned]) -> Report:
        """The same of a module in which positions that nothing reads were left out.

        Args:
            calls: name of a call that changed → what it is now.
        """
        return replace(self, regions=tuple(_thinned(r, calls.get(r.call)) for r in self.regions)) if calls else self

    def joined(self, sequences: Iterable[CallSequence], calls: Mapping[str, str]) -> Report:
        """The same of a module whose calls were joined.

        Args:
            calls: name of a call that is a member now → its sequence's.
        """
        if not calls:
            return self
        regions = tuple(replace(r, call=calls[r.call]) if r.call in calls else r for r in self.regions)
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
        return asdict(replace(self, before=None, after=None), dict_factory=_without_modules)


def _thinned(region: Region, now: Thinned | None) -> Region:
    if now is None:
        return region
    reason = f"{region.reason}; computed as {now.shape}, for nothing reads the rest" if now.shape else region.reason
    return replace(region, attributes=now.attributes, implementation=now.implementation, reason=reason)


def _without_modules(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if name not in ("before", "after")}


@dataclass(frozen=True)
class Group:
    """Regions that a table shows as one row, because they differ only in name."""

    count: int
    formula: str
    shape: str
    kernel: str | None
    implementation: str | None
    reason: str
    """Empty for dispatched regions: the kernel's name says enough."""


def grouped(regions: Iterable[Region]) -> tuple[Group, ...]:
    """Count equal regions; first come, first listed."""
    counts: dict[tuple[str, str, str | None, str | None, str], int] = {}
    for region in regions:
        why = "" if region.dispatched else explanation(region)
        key = (region.formula, region.shape, region.kernel, region.implementation, why)
        counts[key] = counts.get(key, 0) + 1
    return tuple(Group(count, *key) for key, count in counts.items())


def explanation(region: Region) -> str:
    """Why the region is where it is, without the instruction's name (so that equal cases group)."""
    if region.refusal is None or region.refusal.code == "policy":
        return region.reason
    return f"{region.refusal.code}: {region.refusal.sentence}"
