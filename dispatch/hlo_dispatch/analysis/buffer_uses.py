"""Uses of buffers in one computation: which instruction writes a value's buffer, and which ones read it.

Bitcasts, tuples and their elements only forward a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.in_place_updates import variant_elements
from hlo_dispatch.analysis.peeling import PEEL_RENAMES, peel_instruction
from hlo_dispatch.ir.module import Module
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
        self._unchanged: dict[int, AbstractSet[int]] = {}
        """Id of a loop's body → the elements of its state that it returns unchanged."""
        loops: set[int] = set()
        for identifier, proto in instructions.items():
            if proto.opcode == "while":
                loops.add(identifier)
            elif proto.opcode == "parameter":
                self._parameters.setdefault(proto.parameter_number, set()).add(identifier)
            elif proto.opcode == "get-tuple-element":
                self._elements.setdefault((proto.operand_ids[0], proto.tuple_index), set()).add(identifier)
        others = [i for i in instructions.values() if i.opcode != "get-tuple-element"] if loops else []
        self._handed_on = loops.intersection(operand for proto in others for operand in proto.operand_ids[:])
        """Loops whose results something takes as a whole, another loop perhaps, which may overwrite them."""

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

    def overwritten(self, module: Module, update: int, numbers: Collection[int]) -> set[int]:
        """Values whose buffers an in-place update may overwrite, as these of its operands.

        A loop overwrites the elements of its state that its body does not return unchanged. The others stay in their
        buffers, where what follows the loop may overwrite them.
        """
        found: set[int] = set()
        instruction = self._instructions[update]
        pending = [instruction.operand_ids[number] for number in numbers]
        if (state := self._state(instruction)) is not None:
            unchanged = self._unchanged_elements(module, instruction)
            pending = [element for number, element in enumerate(state.operand_ids[:]) if number not in unchanged]
        while pending:
            operand = self._instructions[pending.pop()]
            if operand.opcode in FORWARDS:
                pending += operand.operand_ids
            elif operand.shape.element_type != _TUPLE and operand.opcode != "constant":
                found.add(operand.id)
                if operand.opcode == "get-tuple-element":
                    loop = self._instructions[operand.operand_ids[0]]
                    state = self._state(loop)
                    if state is not None and operand.tuple_index in self._unchanged_elements(module, loop):
                        pending.append(state.operand_ids[operand.tuple_index])
        return found

    def _state(self, instruction: InstructionProto) -> InstructionProto | None:
        """The tuple that a loop takes; None, too, where its result is handed on as a whole."""
        if instruction.opcode != "while" or instruction.id in self._handed_on:
            return None
        state = self._instructions[instruction.operand_ids[0]]
        return state if state.opcode == "tuple" else None

    def _unchanged_elements(self, module: Module, loop: InstructionProto) -> AbstractSet[int]:
        body = module.computations[loop.called_computation_ids[0]]
        if body.id not in self._unchanged:
            # A draft of the body that takes more elements may not be committed yet.
            elements = range(len(body.program_shape.parameters[0].tuple_shapes))
            self._unchanged[body.id] = frozenset(elements).difference(variant_elements(body))
        return self._unchanged[body.id]

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
