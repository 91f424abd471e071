"""Uses of buffers in one computation: which instruction writes a value's buffer, and which ones read it.

Bitcasts, tuples and their elements only forward a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from hlo_dispatch.analysis.peeling import PEEL_RENAMES, peel_instruction
from hlo_dispatch.ir.opcode import FORWARDS
from hlo_dispatch.ir.schema import InstructionProto

_TUPLE = 13


class BufferUses:
    """The definers and readers of the buffers of instructions, which may change meanwhile."""

    def __init__(self, instructions: Mapping[int, InstructionProto], users: Callable[[int], Iterable[int]]) -> None:
        """`users`: id of an instruction → ids of its users."""
        self._instructions, self._users = instructions, users
        self._parameters: dict[int, set[int]] = {}
        self._elements: dict[tuple[int, int], set[int]] = {}
        """(id of a tuple, index) → ids of its get-tuple-elements."""
        for identifier, proto in instructions.items():
            if proto.opcode == "parameter":
                self._parameters.setdefault(proto.parameter_number, set()).add(identifier)
            elif proto.opcode == "get-tuple-element":
                self._elements.setdefault((proto.operand_ids[0], proto.tuple_index), set()).add(identifier)

    def definer(self, value: int) -> int:
        """The instruction that writes the value's buffer."""
        return peel_instruction(self._instructions[value], PEEL_RENAMES, self._instructions).id

    def aliases(self, value: int) -> list[int]:
        """The value and its bitcasts, which have the same buffer."""
        found = [value]
        for name in found:
            found += [user for user in self._users(name) if self._instructions[user].opcode == "bitcast"]
        return found

    def readers(self, value: int) -> list[int]:
        """Instructions that read the value's buffer."""
        users = dict.fromkeys(user for name in self.aliases(value) for user in self._users(name))
        return [user for user in users if self._instructions[user].opcode not in FORWARDS]

    def overwritten(self, update: int, numbers: Collection[int]) -> set[int]:
        """Values whose buffers an in-place update may overwrite, as these of its operands."""
        found: set[int] = set()
        pending = [self._instructions[update].operand_ids[number] for number in numbers]
        while pending:
            operand = self._instructions[pending.pop()]
            if operand.opcode in FORWARDS:
                pending += operand.operand_ids
            elif operand.shape.element_type != _TUPLE and operand.opcode != "constant":
                found.add(operand.id)
        return found

    def parameter_elements(self, parameter: tuple[int, ...]) -> set[int]:
        """The instructions that are this element of a parameter: its number, then tuple indices."""
        number, *path = parameter
        elements = self._parameters.get(number, set())
        for index in path:
            elements = {element for element in elements for element in self._elements.get((element, index), ())}
        return elements

    def elements(self, value: int, index: int) -> set[int]:
        """The get-tuple-elements that are this element of a value."""
        return self._elements.get((value, index), set())
