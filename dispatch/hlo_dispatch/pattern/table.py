"""A loaded table: plain frozen values, checked, with the place each was written at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hlo_dispatch.pattern.formula import Formula
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES

if TYPE_CHECKING:
    from hlo_dispatch.pattern.structure import Pattern


@dataclass(frozen=True)
class SourceLocation:
    """Where an entry was written; tables are the author's, so every message can point back."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Parameter:
    """A number inside an activation's formula, and how a region's samples give it away."""

    name: str
    solve: Formula
    example: float
    """A typical value; loading proves on it that `solve` inverts the activation's formula."""


@dataclass(frozen=True)
class EltwiseBinding:
    """The oneDNN post-op of an activation: its algorithm, and its two numbers from the parameters."""

    algorithm: str
    alpha: Formula | None
    beta: Formula | None


@dataclass(frozen=True)
class Activation:
    """A function of one variable that a kernel can apply to its result."""

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
    """How `other (op) value` is said to a kernel that only computes `value (op) other`."""

    first: EltwiseBinding
    then: str
    """The binary algorithm that follows."""


@dataclass(frozen=True)
class Binary:
    """A binary epilogue: `value (op) other`, where `other` does not depend on the anchor."""

    name: str
    opcode: str
    algorithm: str
    commutative: bool
    reversed: Reversed | None
    formula: Formula
    roles: Mapping[str, str]
    """What such an operand is called, by its broadcast: per-channel, full, ..."""
    origin: str
    location: SourceLocation

    def describe(self) -> str:
        return self.name


@dataclass(frozen=True)
class Numerics:
    """How far from stock a kernel's result may be in one element type, and why."""

    tolerance: float
    why: str


@dataclass(frozen=True)
class AnchorKind:
    """An instruction that a kernel computes, and what may follow it inside the kernel."""

    name: str
    opcode: str
    op_kind: str
    """As what the instruction is read, one of READINGS."""
    kernel: str
    alternative_kernels: tuple[str, ...]
    """Kernels that are given the same attributes, and tried where speed is measured."""
    dtypes: tuple[str, ...]
    """What the kernel reads."""
    activations: tuple[str, ...]
    """What may follow inside the kernel, by name."""
    binaries: tuple[str, ...]
    longest_chain: int
    """How many post-ops may follow."""
    priority: int
    numerics: Mapping[str, Numerics]
    formula: str
    origin: str
    location: SourceLocation

    def describe(self) -> str:
        return f"{self.name} by {' or '.join((self.kernel, *self.alternative_kernels))}"

    def gives(self, element_type: str) -> bool:
        """Whether the kernel's result may be of this type; it sums in f32 whatever it reads."""
        is_rounded = self.op_kind in ("integer", "integer_product", "pooling") and element_type in INTEGER_TYPES
        return is_rounded or element_type == "f32" or element_type in self.dtypes


@dataclass(frozen=True)
class KernelBinding:
    """A custom-call target, the library behind it, and what it is given."""

    name: str
    target: str
    library: str
    formula: str
    operands: Mapping[str, str]
    attributes: Mapping[str, str]
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
    """A library call (or a transform) that JAX's program makes, and the kernels that compute the same."""

    name: str
    opcode: str
    targets: Mapping[str, str]
    """Element type → the custom-call's target; empty where the opcode says it all."""
    kernels: tuple[str, ...]
    """Every kernel that can; the policy chooses."""
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
class Attention:
    """Two products with a softmax between them, and the kernel that computes them together."""

    name: str
    kernel: str
    numerics: Mapping[str, Numerics]
    """By the types of what it reads and gives."""
    formula: str
    origin: str
    location: SourceLocation

    def describe(self) -> str:
        return f"{self.name} by {self.kernel}"


@dataclass(frozen=True)
class Table:
    """Everything the shipped and the user's files say."""

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
    fingerprint: str = field(repr=False)
    """Changes whenever any byte of any source does; part of every cache key."""

    def activation(self, name: str) -> Activation:
        return next(activation for activation in self.activations if activation.name == name)


def describe(name: str, values: list[float | str]) -> str:
    """`clip(0, 6)`: numbers as short as single precision allows."""
    if not values:
        return name
    return f"{name}({', '.join(value if isinstance(value, str) else short(value) for value in values)})"


def short(value: float) -> str:
    """The shortest text that reads back as the same single-precision number."""
    text = str(np.float32(value))
    return text.removesuffix(".0")
