"""Stacked operands: the operands of a computation's kernel calls that are read where a stacked array has them.

The call gets the whole array and the index, and no copy of the slice is made. The slice was a copy, though: where the
array is overwritten in the same computation, the call has to run before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import cached_property

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.buffer_uses import BufferUses
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.in_place_updates import UPDATES, writes_in_place, written_operands
from hlo_dispatch.analysis.stacked_slices import StackedSlice, stacked_slice
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto


class StackedOperands:
    """Finds the stacked operands of one computation's calls."""

    def __init__(self, module: Module, graph: FlatGraph, aliasing: BufferAliasing, results: AbstractSet[Node]) -> None:
        """
        Args:
            results: the values that kernel calls compute, which call groups may keep in their scratch memory.
        """
        self._module, self._graph, self._aliasing, self._results = module, graph, aliasing, results

    def find(self, operand: Node, values: Iterable[Node]) -> StackedSlice | None:
        """The slice that an operand of a call is, where the call can read it from the stacked array.

        Args:
            values: what the call computes.
        """
        found = stacked_slice(operand)
        if found is None or found.stack in self._results or found.index in self._results:
            return None
        updates = self._updates.get(found.stack, [])
        if not updates:
            return None if found.stack in self._replaced_elements else found
        return None if _depends_on(values, updates) else found

    @cached_property
    def _updates(self) -> dict[Node, list[Node]]:
        """Value → the in-place updates that may overwrite its buffer."""
        graph, found = self._graph, dict[Node, list[Node]]()
        uses = BufferUses(graph.instruction_of, lambda _: ())
        for identifier, instruction in graph.instruction_of.items():
            if self._writes_in_place(instruction):
                for value in uses.overwritten(self._module, identifier, written_operands(self._module, instruction)):
                    found.setdefault(graph.value_of[value], []).append(graph.value_of[identifier])
        return found

    def _writes_in_place(self, instruction: InstructionProto) -> bool:
        members = self._graph.members.get(instruction.id)
        if members is None:
            return writes_in_place(self._module, instruction)
        return any(member.opcode in UPDATES for member in members)

    @cached_property
    def _replaced_elements(self) -> AbstractSet[Node]:
        """The elements of parameters whose buffers get another value as the computation's result."""
        root = self._graph.root
        replaced = dict[tuple[int, ...], Node | None]()
        for element, number in self._aliasing.pairs(self._graph.computation):
            is_element = number is not None and root.opcode == "tuple"
            replaced[element] = root.operands[number] if is_element and number is not None else root
        return {node for node in self._graph.nodes if (path := _path(node)) in replaced and replaced[path] is not node}


def _path(node: Node) -> tuple[int, ...] | None:
    """The number of a parameter, then tuple indices, where the node is this element of it."""
    path: list[int] = []
    while node.opcode == "get-tuple-element":
        path.insert(0, node.proto.tuple_index)
        node = node.operands[0]
    return (node.proto.parameter_number, *path) if node.opcode == "parameter" else None


def _depends_on(values: Iterable[Node], others: Iterable[Node]) -> bool:
    """Whether any of these values is computed from any of the others."""
    pending, seen, wanted = list(values), set[Node](), set(others)
    while pending:
        node = pending.pop()
        if node in wanted:
            return True
        if node not in seen:
            seen.add(node)
            pending += node.operands
    return False
