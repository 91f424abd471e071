"""Benchmark cases: pattern, shape, element type and source model, for tests, benchmarks and the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from hlo_dispatch.bench.epilogues import CHANNEL
from hlo_dispatch.bench.operations import Dimensions, channels_first
from hlo_dispatch.bench.pattern import BenchPattern, CaseError, check_sizes, explain_shape, read_pattern, read_shape
from hlo_dispatch.bench.shapes import ROWS

BYTES = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "c64": 8}
LAYOUTS = ("channels-last", "channels-first")
TAGS = ("ci", "primary", "attention")


@dataclass(frozen=True)
class Case:
    """One thing to measure."""

    pattern: BenchPattern
    shape: tuple[tuple[str, int], ...]
    """The numbers that differ from the operation's defaults, in its order."""
    dtype: str
    layout: str
    model: str
    """Where it comes from; empty for one that was asked for."""
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`conv_bias_relu n=1,c=64,h=56,w=56,k=64,r=3 f32`: what can be typed back."""
        order = "" if self.layout == LAYOUTS[0] else f" {self.layout}"
        return f"{self.pattern.name} {self.shape_text} {self.dtype}{order}"

    @property
    def shape_text(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.shape)

    @property
    def sizes(self) -> dict[str, int]:
        return self.pattern.operation.sizes(dict(self.shape))

    @property
    def is_channels_first(self) -> bool:
        return self.layout == LAYOUTS[1]

    @property
    def channel_axis(self) -> int:
        """The result's dimension that a bias runs along."""
        return 1 if self.is_channels_first else len(self.result) - 1

    @property
    def result(self) -> Dimensions:
        return self._ordered(self.pattern.operation.result(self.sizes), "result")

    def operands(self) -> dict[str, Dimensions]:
        """Dimensions of every argument, in order; those of the steps are called after them."""
        operation = self.pattern.operation
        found = {name: self._ordered(dims, name) for name, dims in operation.operands(self.sizes).items()}
        for number, step in enumerate(self.pattern.steps):
            if step.is_binary:
                along = (self.result[self.channel_axis],) if step.operand == CHANNEL else self.result
                found[f"{step.name}.{number}"] = along
        return found

    def _ordered(self, dimensions: Dimensions, role: str) -> Dimensions:
        if not self.is_channels_first:
            return dimensions
        if role == "weights" or (role == "result" and self.pattern.operation.name.endswith("weights_gradient")):
            return (dimensions[-1], dimensions[-2], *dimensions[:-2])
        return channels_first(dimensions)

    @property
    def work(self) -> float:
        """Floating-point operations; each step counts as one for each element of the result."""
        return self.pattern.operation.work(self.sizes) + len(self.pattern.steps) * prod(self.result)

    @property
    def bytes_moved(self) -> int:
        """Minimum memory traffic, in bytes."""
        elements = sum(prod(dims) for dims in self.operands().values()) + prod(self.result)
        return elements * BYTES[self.dtype]


def make_case(
    pattern: str, shape: str, dtype: str = "f32", layout: str = LAYOUTS[0], model: str = "", tags: Sequence[str] = ()
) -> Case:
    """One case from text.

    Raises:
        CaseError: something of it there is not; the message says what there is.
    """
    read = read_pattern(pattern)
    operation = read.operation
    if dtype not in operation.dtypes:
        raise CaseError(f"{operation.name} has no element type {dtype!r} here, only {', '.join(operation.dtypes)}")
    if layout not in LAYOUTS:
        raise CaseError(f"unknown layout {layout!r}: {' or '.join(LAYOUTS)}")
    if layout == LAYOUTS[1] and not operation.spatial:
        raise CaseError(f"{operation.name} has no channels to put first")
    given = read_shape(read, shape)
    order = [
        key
        for key in (*operation.needed, *operation.defaults)
        if key in given and given[key] != operation.defaults.get(key)
    ]
    return Case(read, tuple((key, given[key]) for key in order), dtype, layout, model, tuple(tags))


def small_case(pattern: str, dtype: str = "") -> Case:
    """A pattern at the smallest shape that has everything in it, for tests."""
    read = read_pattern(pattern)
    check_sizes(read.operation, read.operation.small)
    shape = ",".join(f"{key}={value}" for key, value in read.operation.small.items())
    return make_case(pattern, shape, dtype or read.operation.dtypes[0])


def _listed() -> Iterable[Case]:
    for row in ROWS:
        for dtype in row.dtypes.split():
            yield make_case(row.pattern, row.shape, dtype, row.layout or LAYOUTS[0], row.model, row.tags.split())


CASES: tuple[Case, ...] = tuple(_listed())


def choose(
    patterns: Sequence[str] = (),
    *,
    shape: str = "",
    dtypes: Sequence[str] = (),
    layout: str = "",
    tag: str = "",
) -> tuple[Case, ...]:
    """The cases that are meant: of the list, or, with a shape, ones that are made for it.

    Raises:
        CaseError: there is nothing like that.
    """
    if shape:
        if not patterns:
            raise CaseError("a shape needs a pattern: hlo-dispatch bench conv_bias_relu --shape n=1,c=64,…")
        chosen = [(p, d or read_pattern(p).operation.dtypes[0]) for p in patterns for d in dtypes or ("",)]
        return tuple(make_case(p, shape, d, layout or LAYOUTS[0]) for p, d in chosen)
    if tag and tag not in TAGS:
        raise CaseError(f"unknown tag {tag!r}: one of {', '.join(TAGS)}")
    if layout and layout not in LAYOUTS:
        raise CaseError(f"unknown layout {layout!r}: {' or '.join(LAYOUTS)}")
    for dtype in dtypes:
        if dtype not in BYTES:
            raise CaseError(f"unknown element type {dtype!r}: one of {', '.join(BYTES)}")
    for name in patterns:
        pattern = read_pattern(name)
        if not any(case.pattern.name == name for case in CASES):
            raise CaseError(
                f"no listed case has the pattern {name}: give its --shape ({explain_shape(pattern.operation)})"
            )
    found = tuple(
        case
        for case in CASES
        if (not patterns or case.pattern.name in patterns)
        and (not dtypes or case.dtype in dtypes)
        and (not layout or case.layout == layout)
        and (not tag or tag in case.tags)
    )
    if not found:
        raise CaseError("no listed case is like that; `hlo-dispatch bench cases` lists them")
    return found
