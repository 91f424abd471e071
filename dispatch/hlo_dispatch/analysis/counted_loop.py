"""Counted loop: a `while` of known trip count, as `lax.scan` becomes one, with the role of each value that it carries.

Of the elements of its tuple one is the induction variable, some the body hands on unchanged (*invariants*), some it
updates at one index an iteration (*stacked outputs*), and the rest is *state*. An invariant that the body slices at one
index an iteration is a *stacked input*.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node
from hlo_dispatch.analysis.loop_indices import loop_indices
from hlo_dispatch.analysis.peeling import is_widening
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import HALF_TYPES


@dataclass(frozen=True)
class StackedAccess:
    """A slice of a stacked array, of size 1 along one dimension, read or written at one index an iteration."""

    element: int
    """Number of the stacked array in the loop's tuple."""
    dimension: int
    """The dimension that is indexed."""
    is_reversed: bool
    """Whether the last slice comes first."""


@dataclass(frozen=True)
class StackedOutput:
    """A stacked array that the body writes slice after slice."""

    access: StackedAccess
    written: Node
    """One slice."""


@dataclass(frozen=True)
class CountedLoop:
    """A counted loop and the flat graph of its body."""

    body: FlatGraph
    trips: int
    first: int
    """The induction variable in the first iteration."""
    induction_element: int

    @classmethod
    def of(cls, loop: InstructionProto, body: FlatGraph) -> CountedLoop | None:
        """None where XLA does not know the trip count or the induction variable."""
        try:
            known = json.loads(loop.backend_config or b"{}")
            trips = int(known["known_trip_count"]["n"])
            first = int(known["known_init_step"]["init"])
            element = int(known["known_induction_variable"]["tuple_index"])
        except (ValueError, TypeError, KeyError):
            return None
        if body.root.opcode != "tuple" or trips < 1:
            return None
        return cls(body, trips, first, element)

    @property
    def next_state(self) -> tuple[Node, ...]:
        """The values that the body returns."""
        return self.body.root.operands

    def element_of(self, node: Node) -> int | None:
        """Number of the tuple's element that the node is; None: it is another value."""
        node = peel_inserted_copies(node)
        if node.opcode == "get-tuple-element" and node.operands[0].opcode == "parameter":
            return node.proto.tuple_index
        return None

    def is_invariant(self, element: int) -> bool:
        return self.element_of(self.next_state[element]) == element

    def numbers_iterations(self, index: Node) -> bool:
        """Whether an integer is the number of each iteration, from 0 on."""
        return loop_indices(self.body, self.trips, self._initial, [index]) == [list(range(self.trips))]

    def stacked_input(self, node: Node) -> StackedAccess | None:
        """The access of a dynamic-slice that reads slice after slice of an invariant."""
        element = self.element_of(node.operands[0]) if node.opcode == "dynamic-slice" else None
        if element is None or not self.is_invariant(element):
            return None
        return self._access(element, node.operands[0], node.shape.dimensions, node.operands[1:])

    def stacked_output(self, element: int) -> StackedOutput | None:
        """The dynamic-update-slice that writes slice after slice of this element.

        XLA may widen half precision first, and round all of it afterwards.
        """
        update = self.next_state[element]
        if update.opcode == "convert" and update.shape.element_type in HALF_TYPES:
            update = update.operands[0]
        if update.opcode != "dynamic-update-slice":
            return None
        stack, written, *indices = update.operands
        if self.element_of(stack.operands[0] if is_widening(stack) else stack) != element:
            return None
        access = self._access(element, stack, written.shape.dimensions, tuple(indices))
        return None if access is None else StackedOutput(access, written)

    def _access(
        self, element: int, stack: Node, slice_sizes: tuple[int, ...], indices: tuple[Node, ...]
    ) -> StackedAccess | None:
        sizes = stack.shape.dimensions
        if len(indices) != len(sizes):
            return None
        values = loop_indices(self.body, self.trips, self._initial, indices)
        moving = [] if values is None else [number for number, value in enumerate(values) if any(value)]
        dimension = moving[0] if moving else 0
        if values is None or len(moving) > 1 or sizes[dimension] != self.trips or slice_sizes[dimension] != 1:
            return None
        index, order = values[dimension], list(range(self.trips))
        if any(s != full for n, (s, full) in enumerate(zip(slice_sizes, sizes, strict=True)) if n != dimension):
            return None
        if index not in (order, order[::-1]):
            return None
        return StackedAccess(element, dimension, is_reversed=index != order)

    def _initial(self, element: int) -> int | None:
        return self.first if element == self.induction_element else None


def peel_inserted_copies(node: Node) -> Node:
    """The value that copy insertion copied."""
    while node.opcode == INSERTED_COPY and node.shape == node.operands[0].shape:
        node = node.operands[0]
    return node


def loop_at(module: Module, node: Node) -> InstructionProto | None:
    """The `while` that the instruction is, or that is all of what it calls."""
    return node.proto if node.opcode == "while" else called_loop(module, node.proto)


def called_loop(module: Module, instruction: InstructionProto) -> InstructionProto | None:
    """The `while` that is all of what the instruction calls, as XLA writes a small call."""
    if instruction.opcode != "call":
        return None
    called = module.computations[instruction.called_computation_ids[0]].instructions[:]
    is_loop = len(called) == 2 and (called[0].opcode, called[1].opcode) == ("parameter", "while")
    return called[1] if is_loop else None
