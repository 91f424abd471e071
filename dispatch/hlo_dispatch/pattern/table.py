"""Pattern table: the checked entries of all files as frozen values, each with its source location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hlo_dispatch.pattern.algorithms import DTYPES
from hlo_dispatch.pattern.formula import Formula
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES, OP_KINDS

if TYPE_CHECKING:
    from hlo_dispatch.pattern.structure import Pattern


@dataclass(frozen=True)
class SourceLocation:
    """File, line and column of an entry, for messages."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Parameter:
    """A parameter of an activation's formula, and how to solve it from a region's samples."""

    name: str
    solve: Formula
    example: float
    """A typical value; loading proves on it that `solve` inverts the activation's formula."""


@dataclass(frozen=True)
class EltwiseBinding:
    """The oneDNN post-op of an activation: its algorithm, and alpha and beta as formulas of the parameters."""

    algorithm: str
    alpha: Formula | None
    beta: Formula | None


@dataclass(frozen=True)
class Activation:
    """An activation: a function of one variable that a kernel can apply to its result."""

    name: str
    formula: Formula
    parameters: tuple[Parameter, ...]
    require: Formula | None
    """A condition on the parameters: solutions outside it are degenerate and refused."""
    onednn: EltwiseBinding
    origin: str
    location: SourceLocation

    def describe(self, values: Mapping[str, float] | None = None) -> str:
        """`gelu_tanh`, `clip(0, 6)`; without values the parameters' names: `clip(low, high)`."""
        return describe(self.name, [p.name if values is None else values[p.name] for p in self.parameters])


@dataclass(frozen=True)
class Reversed:
    """The post-ops for `other (op) value`, for kernels that only compute `value (op) other`."""

    first: EltwiseBinding
    then: str
    """The binary algorithm that follows."""


@dataclass(frozen=True)
class Binary:
    """A binary epilogue: `value (op) other`, where `other` does not depend on the anchor op."""

    name: str
    opcode: str
    algorithm: str
    commutative: bool
    reversed: Reversed | None
    formula: Formula
    roles: Mapping[str, str]
    """Names of such an operand, by its broadcast: per-channel, full, ..."""
    origin: str
    location: SourceLocation

    def describe(self) -> str:
        return self.name


@dataclass(frozen=True)
class Numerics:
    """Tolerance of a kernel's result in one element type, and the reason for it."""

    tolerance: float
    why: str


@dataclass(frozen=True)
class AnchorKind:
    """An anchor entry: an op kind, its kernel, and the epilogue that the kernel supports."""

    name: str
    opcode: str
    op_kind: str
    """One of OP_KINDS."""
    kernel: str
    alternative_kernels: tuple[str, ...]
    """Kernels for the same attributes, which are tried where speed is measured."""
    dtypes: tuple[str, ...]
    """Element types of the source, and of weights that are no integers."""
    activations: tuple[str, ...]
    """Names of activations that the kernel supports as post-ops."""
    binaries: tuple[str, ...]
    longest_chain: int
    """Maximum number of post-ops."""
    priority: int
    numerics: Mapping[str, Numerics]
    """By the element types of the result and of what the epilogue reads; of other results of integers, those of f32."""
    formula: str
    origin: str
    location: SourceLocation

    def describe(self) -> str:
        return f"{self.name} by {' or '.join((self.kernel, *self.alternative_kernels))}"

    def takes(self, element_type: str) -> bool:
        """Whether the kernel's source may be of this type."""
        is_exact = element_type in INTEGER_TYPES and OP_KINDS[self.op_kind].is_exact
        return is_exact or element_type in self.dtypes

    def gives(self, element_type: str) -> bool:
        """Whether the kernel's result may be of this type; one of floats accumulates in f32 whatever it reads."""
        if element_type in self.numerics or (element_type == "f32" and any(dtype in DTYPES for dtype in self.numerics)):
            return True
        return element_type in OP_KINDS[self.op_kind].integer_results and any(map(self.takes, INTEGER_TYPES))


@dataclass(frozen=True)
class ScoreStepKind:
    """A kind of score step that an attention's kernel supports."""

    formula: str
    """The template of its formula, with `{scores}` and `{value}`."""
    attributes: Mapping[str, str]
    """The kernel's attribute → the fact of the step: its value, or its distance."""


@dataclass(frozen=True)
class KernelBinding:
    """A kernel: its custom-call target, its library, operands and attributes."""

    name: str
    target: str
    library: str
    formula: str
    operands: Mapping[str, str]
    attributes: Mapping[str, str]
    describes: Mapping[str, Sequence[str]]
    """Operand, or `dst` → what attributes say of it."""
    score_steps: Mapping[str, ScoreStepKind]
    """By kind; empty unless it computes attentions."""
    location: SourceLocation
    symbol: str = ""
    """The handler in the user's own library; empty for the kernels that come with the package."""
    path: Path | None = None
    """The user's own library; it exists, and nothing of it has been loaded."""
    symbol_location: SourceLocation | None = None

    @property
    def is_user_defined(self) -> bool:
        """Whether it is in the user's own library."""
        return self.path is not None


@dataclass(frozen=True)
class Routine:
    """A library routine: a call (or a transform) of JAX's program, and the kernels that compute the same."""

    name: str
    opcode: str
    targets: Mapping[str, str]
    """Element type → the custom-call's target; empty where the opcode says it all."""
    kernels: tuple[str, ...]
    """Its alternative kernels; selection chooses."""
    operands: Mapping[str, str]
    """Name → "matrix" or "vector", in order."""
    results: Mapping[str, str]
    options: tuple[str, ...]
    symmetrised: str
    """The operand that may be read as (a + transpose(a)) / 2; empty where there is none."""
    factors_of: tuple[str, ...]
    """Routines: taken only where an operand is the factor that one of them gives; empty: everywhere."""
    numerics: Mapping[str, Numerics]
    formula: str
    origin: str
    location: SourceLocation

    def describe(self) -> str:
        return f"{self.name} by {' or '.join(self.kernels)}"


@dataclass(frozen=True)
class _RegionKind:
    """An entry for a region that one kernel computes as a whole."""

    name: str
    kernel: str
    numerics: Mapping[str, Numerics]
    """By the element types of operands and result."""
    formula: str
    origin: str
    location: SourceLocation

    def describe(self) -> str:
        return f"{self.name} by {self.kernel}"


@dataclass(frozen=True)
class Attention(_RegionKind):
    """The attention entry: two products with a softmax between them, and the kernel that computes them together."""

    score_steps: Mapping[str, ScoreStepKind]
    """The kernel's, by kind."""


@dataclass(frozen=True)
class Recurrent(_RegionKind):
    """The recurrent entry: a loop whose body computes a recurrent cell, and the kernel that computes all steps."""


@dataclass(frozen=True)
class GroupNorm(_RegionKind):
    """The group norm entry: a normalization over groups of channels, and the kernel that computes it."""


@dataclass(frozen=True)
class Elementwise(_RegionKind):
    """The elementwise entry: instructions around slow functions, and the kernel that computes them together."""


@dataclass(frozen=True)
class Table:
    """The content of all shipped and user's files."""

    activations: tuple[Activation, ...]
    binaries: Mapping[str, Binary]
    """By HLO opcode."""
    anchors: Mapping[str, AnchorKind]
    kernels: Mapping[str, KernelBinding]
    patterns: tuple[Pattern, ...]
    """In the order in which they are tried."""
    sources: tuple[Path, ...]
    routines: tuple[Routine, ...]
    attentions: tuple[Attention, ...]
    recurrents: tuple[Recurrent, ...]
    group_norms: tuple[GroupNorm, ...]
    elementwise: tuple[Elementwise, ...]
    fingerprint: str = field(repr=False)
    """Changes whenever any byte of any source does; part of every cache key."""

    def activation(self, name: str) -> Activation:
        return next(activation for activation in self.activations if activation.name == name)


def describe(name: str, values: list[float | str]) -> str:
    """`clip(0, 6)`, with numbers as short as single precision allows."""
    if not values:
        return name
    return f"{name}({', '.join(value if isinstance(value, str) else short(value) for value in values)})"


def short(value: float) -> str:
    """The shortest text that reads back as the same single-precision number."""
    text = str(np.float32(value))
    return text.removesuffix(".0")
