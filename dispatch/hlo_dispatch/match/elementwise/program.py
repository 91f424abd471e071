"""Elementwise program: a region as steps in the kernel's text (kernels/elementwise/program.h), and its operands."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_BROADCASTS, PEEL_LAYOUTS
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, full_view, peeled_views

FUNCTIONS = frozenset(
    "atan2 cbrt cosine erf exponential exponential-minus-one log log-plus-one power sine tan tanh".split()
)
"""Opcodes that the kernel computes by a function of vectors."""
OPERATIONS = frozenset(
    "abs add and ceil clamp compare convert divide floor is-finite maximum minimum multiply negate not or "
    "round-nearest-afz round-nearest-even rsqrt select sign sqrt subtract xor".split()
)
"""Opcodes that are loops of the kernel's own."""
MOST_OPERANDS = 16
_PEELED = PEEL_LAYOUTS | PEEL_BROADCASTS
_OF_COMPLEX = frozenset(("imag", "real"))
"""Whose numbers are not in memory; complex functions are left to XLA."""
_BITS = {"f32": "<f", "f64": "<d"}


class NotExpressible(Exception):
    """The kernel has no such operand."""


@dataclass
class ElementwiseProgram:
    """A region as the kernel's steps."""

    operands: list[View] = field(default_factory=list[View])
    """In the order of the result's elements in memory."""
    steps: list[str] = field(default_factory=list[str])

    @property
    def by_role(self) -> dict[str, View]:
        """The operands under the kernel's names of them."""
        return {f"src_{number}" if number else "src": view for number, view in enumerate(self.operands)}

    @property
    def text(self) -> str:
        return "; ".join(self.steps)


def write_program(region: Sequence[Node]) -> ElementwiseProgram:
    """The program of a region in the graph's order.

    Raises:
        NotExpressible: an operand cannot be read.
    """
    writer = _Writer(region)
    for node in region:
        writer.add(node)
    return writer.program


class _Writer:
    def __init__(self, region: Sequence[Node]) -> None:
        self.program = ElementwiseProgram()
        result = region[-1]
        self._order = tuple(reversed(result.shape.minor_to_major))
        self._sizes = [result.shape.dimensions[number] for number in self._order]
        members = set(region)
        outside = dict.fromkeys(o for node in region for o in node.operands if o not in members)
        self._numbers: dict[Node, int] = {}
        for node in outside:
            if _constant(node) is None:
                self._numbers[node] = self._operand(node)
        if not self.program.operands or len(self.program.operands) > MOST_OPERANDS:
            raise NotExpressible
        self._next = len(self.program.operands)
        for node in outside:
            if (constant := _constant(node)) is not None:
                self._numbers[node] = self._step(f"{node.shape.element_type} constant {constant}")

    def add(self, node: Node) -> None:
        """Append the steps of an instruction."""
        operands, kind = [self._numbers[operand] for operand in node.operands], node.shape.element_type
        if node.opcode == "clamp":
            low, value, high = operands
            raised = self._step(f"{kind} maximum {low} {value}")
            self._numbers[node] = self._step(f"{kind} minimum {raised} {high}")
            return
        detail = f".{node.proto.comparison_direction}" if node.opcode == "compare" else ""
        self._numbers[node] = self._step(f"{kind} {node.opcode}{detail} {' '.join(map(str, operands))}")

    def _step(self, text: str) -> int:
        self.program.steps.append(text)
        self._next += 1
        return self._next - 1

    def _operand(self, node: Node) -> int:
        """The operand's number; views of the same elements are one."""
        view = self._view(node)
        if view not in self.program.operands:
            self.program.operands.append(view)
        return self.program.operands.index(view)

    def _view(self, node: Node) -> View:
        if not node.shape.is_array or node.shape.is_dynamic or node.opcode in _OF_COMPLEX:
            raise NotExpressible
        if not node.shape.dimensions:  # of a clamp
            return View(node, tuple((size, 0) for size in self._sizes))
        for view in reversed(peeled_views(full_view(node), _PEELED)):
            if all(stride >= 0 for stride in view.strides):
                return View(view.node, tuple(view.dimensions[number] for number in self._order), view.offset)
        raise NotExpressible


def _constant(node: Node) -> str | None:
    """The bits of the number that all elements share, in hexadecimal digits."""
    kind = node.shape.element_type
    value = scalar_constant(node) if kind in _BITS else None
    return None if value is None else struct.pack(_BITS[kind], _in_range(value, kind))[::-1].hex()


def _in_range(value: float, kind: str) -> float:
    """Constants are known in f64; what is too large for f32 is infinite."""
    largest = 3.4028235677973366e38  # from here on f32 rounds to infinity
    return math.copysign(math.inf, value) if kind == "f32" and abs(value) >= largest else value


def described_operands(program: ElementwiseProgram, result: Node) -> dict[str, Any]:
    """The attributes of operands and result, with dimensions that lie alike in all of them as one."""
    sizes = [result.shape.dimensions[number] for number in reversed(result.shape.minor_to_major)]
    kept = _kept(sizes, [view.strides for view in program.operands])
    attributes: dict[str, Any] = {"sources": len(program.operands), "program": program.text}
    dims = _sizes(sizes, kept)
    for role, view in program.by_role.items():
        attributes |= {f"{role}_type": view.element_type, f"{role}_dims": dims}
        attributes[f"{role}_strides"] = [view.strides[last] for last in kept]
        elements = view.node.shape.elements
        reached = 1 + sum((size - 1) * stride for size, stride in view.dimensions)
        if view.offset or elements != reached:
            attributes |= {f"{role}_offset": view.offset, f"{role}_elements": elements}
    attributes |= {"dst_type": result.shape.element_type, "dst_dims": dims}
    attributes["dst_strides"] = [math.prod(dims[number + 1 :]) for number in range(len(dims))]
    return attributes


def _kept(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[int]:
    """The numbers of dimensions that are not one with the next one behind them; those of one element never count."""
    long = [number for number, size in enumerate(sizes) if size > 1] or [len(sizes) - 1]
    return [
        number
        for number, behind in zip(long, [*long[1:], None], strict=True)
        if behind is None or any(of[number] != of[behind] * sizes[behind] for of in strides)
    ]


def _sizes(sizes: Sequence[int], kept: Sequence[int]) -> list[int]:
    """The sizes of the kept dimensions: each times those in front of it that are one with it."""
    starts = [0, *(number + 1 for number in kept[:-1])]
    return [math.prod(sizes[start : last + 1]) for start, last in zip(starts, kept, strict=True)]
