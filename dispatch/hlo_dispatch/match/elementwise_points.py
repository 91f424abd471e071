"""Elementwise points: one row and unit of a state as a function of the values it is computed from.

An element of the next state depends, through elementwise instructions, slices and broadcasts, on single elements of
other arrays: products, biases, the state before. Here these instructions are followed element by element, for a sample
of the state's elements at once, down to the arrays; the function is then evaluated in float64 on any values of those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_COPIES_AND_ROUNDING
from hlo_dispatch.analysis.scalar_constants import apply, scalar_constant
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.ir.shape import Shape

Array = np.ndarray[Any, np.dtype[np.float64]]
Offsets = np.ndarray[Any, np.dtype[np.int64]]
_MAX_OPS = 512
_SUMS = frozenset(
    ("add", "bitcast", "broadcast", "convert", "copy", "negate", "reshape", "slice", "subtract", "transpose")
)


class SourceElements(NamedTuple):
    """Elements of an array that the function reads."""

    node: Node
    offsets: tuple[int, ...]
    """For each sample, where the element lies in the array's buffer."""


class NotElementwise(Exception):
    """An instruction in between is none of those that can be followed."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.name)
        self.node = node


class ElementwisePoints:
    """The function of some results at a sample of elements."""

    def __init__(self, results: Sequence[tuple[Node, Offsets]], is_source: Callable[[Node], bool]) -> None:
        """
        Args:
            results: each result, and where its sampled elements lie in its buffer.
            is_source: whether the function reads an array as it is.

        Raises:
            NotElementwise: a result is computed otherwise.
        """
        self._is_source = is_source
        self._steps: dict[tuple[Node, tuple[int, ...]], list[tuple[Node, tuple[int, ...]]]] = {}
        """Value at these places → its operands', in the order of computation; sources and constants have none."""
        self._results = [self._follow(node, offsets) for node, offsets in results]

    @property
    def sources(self) -> list[SourceElements]:
        """The elements that the function reads."""
        return [
            SourceElements(*value) for value, operands in self._steps.items() if not operands and self._reads(value[0])
        ]

    @property
    def constant_addends(self) -> list[float]:
        """Constants that are added to sums of sources, or subtracted from them, each with both signs."""
        found: dict[float, None] = {}
        for (node, _), operands in self._steps.items():
            if node.opcode in ("add", "subtract") and operands:
                (left, _), (right, _) = operands
                for constant, other in ((scalar_constant(left), right), (scalar_constant(right), left)):
                    is_sum = other.opcode in _SUMS or self._is_source(other)
                    if constant is not None and is_sum and np.isfinite(constant):
                        found |= {float(constant): None, -float(constant): None}
        return list(found)

    def evaluate(self, values: Mapping[SourceElements, Array]) -> list[Array]:
        """The results, of these values of the sources."""
        known: dict[tuple[Node, tuple[int, ...]], Any] = {**values}
        with np.errstate(all="ignore"):
            for value, operands in self._steps.items():
                if value in known:
                    continue
                node = value[0]
                if not operands:
                    known[value] = scalar_constant(node)
                elif node.opcode in ELEMENTWISE:
                    known[value] = apply(node, [known[operand] for operand in operands])
                else:
                    known[value] = known[operands[0]]
        return [np.asarray(known[result], dtype=np.float64) for result in self._results]

    def _reads(self, node: Node) -> bool:
        return scalar_constant(node) is None

    def _follow(self, node: Node, offsets: Offsets) -> tuple[Node, tuple[int, ...]]:
        """Adds the steps that compute these elements. Not by recursion, although cells are short."""
        wanted = node, tuple(offsets.tolist())
        pending = [wanted]
        operands_of: dict[tuple[Node, tuple[int, ...]], list[tuple[Node, tuple[int, ...]]]] = {}
        while pending:
            value = pending[-1]
            if value in self._steps:
                pending.pop()
                continue
            if value not in operands_of:
                operands_of[value] = self._operands(*value)
            missing = [operand for operand in operands_of[value] if operand not in self._steps]
            if missing:
                pending += missing
            else:
                self._steps[value] = operands_of[value]
                pending.pop()
            if len(self._steps) > _MAX_OPS:
                raise NotElementwise(node)
        return wanted

    def _operands(self, node: Node, places: tuple[int, ...]) -> list[tuple[Node, tuple[int, ...]]]:
        if self._is_source(node) or scalar_constant(node) is not None:
            return []
        offsets = np.array(places, dtype=np.int64)
        operands = [operand for operand in node.operands if operand.shape.is_array]
        moved = _operand_offsets(node, offsets)
        if moved is None or len(operands) < len(node.operands) or not operands:
            raise NotElementwise(node)
        return [(operand, tuple(moved(operand).tolist())) for operand in operands]


def _operand_offsets(node: Node, offsets: Offsets) -> Callable[[Node], Offsets] | None:
    """For an operand of the node, where the elements lie that its elements at `offsets` are computed from."""
    opcode, shape = node.opcode, node.shape
    if opcode == "bitcast":
        return lambda _: offsets
    indices = element_indices(offsets, shape)
    if opcode in ELEMENTWISE or opcode in PEEL_COPIES_AND_ROUNDING:
        return lambda operand: _offsets(indices if operand.shape.dimensions else [], operand.shape, len(offsets))
    if opcode == "broadcast":
        kept = [indices[number] for number in node.proto.dimensions[:]]
        return lambda operand: _offsets(kept, operand.shape, len(offsets))
    if opcode == "transpose":
        order = list(node.proto.dimensions[:])
        moved = [indices[order.index(number)] for number in range(len(order))]
        return lambda operand: _offsets(moved, operand.shape, len(offsets))
    if opcode == "slice":
        cuts = node.proto.slice_dimensions[:]
        cut = [c.start + i * max(1, c.stride) for i, c in zip(indices, cuts, strict=True)]
        return lambda operand: _offsets(cut, operand.shape, len(offsets))
    if opcode == "reshape":
        logical = np.zeros(len(offsets), np.int64)
        for index, size in zip(indices, shape.dimensions, strict=True):
            logical = logical * size + index
        return lambda operand: _offsets(_row_major_indices(logical, operand.shape), operand.shape, len(offsets))
    return None


def element_indices(offsets: Offsets, shape: Shape) -> list[Offsets]:
    """The indices of the elements at these offsets, by dimension."""
    return [offsets // stride % size for size, stride in shape.strided_dimensions]


def _row_major_indices(logical: Offsets, shape: Shape) -> list[Offsets]:
    found: list[Offsets] = []
    for size in reversed(shape.dimensions):
        found.append(logical % size)
        logical = logical // size
    return found[::-1]


def _offsets(indices: Sequence[Offsets], shape: Shape, count: int) -> Offsets:
    total = np.zeros(count, np.int64)
    for index, stride in zip(indices, shape.strides, strict=True):
        total += index * stride
    return total
