"""Legality of call groups: which kernel calls of a computation can be merged into one call.

A group must be convex: no other instruction may depend on one member and feed another. Every value gets a stage, which
increments where a member's value has a user that is not a member of the same kind of group. A path that leaves the
members of a stage leads to a later stage, and never back.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, InstructionProto

_INPUTS = frozenset(("parameter", "constant"))
_INTEGERS = frozenset(ELEMENT_TYPE_NUMBERS[name] for name in "s8 s16 s32 s64 u8 u16 u32 u64".split())


class GroupFinder:
    """Finds the call groups of one computation."""

    def __init__(self, editor: Editor, kernels: Mapping[str, str]) -> None:
        """Index a computation, which is in topological order.

        Args:
            kernels: target of a custom-call that may be a member → the group kernel.
        """
        self.instructions = editor.instructions
        self._editor = editor
        self._waited_for = {i for proto in self.instructions.values() for i in proto.control_predecessor_ids[:]}
        self.members = {
            i.id: kernels[i.custom_call_target] for i in self.instructions.values() if self._is_eligible(i, kernels)
        }
        """Id of a call that may be a member → the group kernel."""
        self.producer_of: dict[int, int] = {}
        """Id of a value, a bitcast of one included → the member that produces it."""

    def groups(self) -> list[list[InstructionProto]]:
        """The groups, each of at least two calls in program order."""
        if len(self.members) < 2:
            return []
        stages = self._stages()
        parent = {member: member for member in self.members}

        def representative(member: int) -> int:
            while parent[member] != member:
                parent[member] = member = parent[parent[member]]
            return member

        readers: dict[tuple[int, int, str], int] = {}
        control_predecessors = {member: self.instructions[member].control_predecessor_ids[:] for member in self.members}
        for member, group_kernel in self.members.items():
            for operand in self.instructions[member].operand_ids[:]:
                producer = self.producer_of.get(operand, operand)
                if self.instructions[producer].opcode not in _INPUTS and not _is_index(self.instructions[producer]):
                    # Readers of one value run close to each other.
                    first = readers.setdefault((producer, stages[member], group_kernel), member)
                    parent[representative(member)] = representative(first)
            # A call that waits for another one of its stage joins its group, or two groups might wait for each other.
            for predecessor in (*self.instructions[member].operand_ids[:], *control_predecessors[member]):
                producer = self.producer_of.get(predecessor, predecessor)
                if self.members.get(producer) == group_kernel and stages[producer] == stages[member]:
                    parent[representative(member)] = representative(producer)
        groups: dict[int, list[InstructionProto]] = {}
        for member in self.members:
            groups.setdefault(representative(member), []).append(self.instructions[member])
        return [group for group in groups.values() if len(group) > 1]

    def _is_eligible(self, instruction: InstructionProto, kernels: Mapping[str, str]) -> bool:
        if instruction.opcode != "custom-call" or instruction.custom_call_target not in kernels:
            return False
        if instruction.id == self._editor.root_id:
            return False
        users = [self.instructions[user] for user in self._editor.users(instruction.id)]
        return all(user.opcode == "get-tuple-element" and user.tuple_index == 0 for user in users)

    def _stages(self) -> dict[int, int]:
        stages: dict[int, int] = {}
        for identifier, instruction in self.instructions.items():
            producer = self._forwarded_producer(instruction)
            if producer is not None:
                self.producer_of[identifier] = producer
                stages[identifier] = stages[producer]
                continue
            group_kernel = self.members.get(identifier)
            predecessors = (*instruction.operand_ids[:], *instruction.control_predecessor_ids[:])
            stages[identifier] = max(
                (stages[o] + (self._group_kernel_of(o) not in (None, group_kernel)) for o in predecessors), default=0
            )
        return stages

    def _group_kernel_of(self, value: int) -> str | None:
        """The group kernel of the call that produces the value, or of the call itself."""
        return self.members.get(self.producer_of.get(value, value))

    def _forwarded_producer(self, instruction: InstructionProto) -> int | None:
        # An instruction with control dependencies does not only forward a value.
        if instruction.control_predecessor_ids or instruction.id in self._waited_for:
            return None
        if instruction.opcode == "get-tuple-element" and instruction.operand_ids[0] in self.members:
            return instruction.operand_ids[0]
        return self.producer_of.get(instruction.operand_ids[0]) if instruction.opcode == "bitcast" else None


def _is_index(instruction: InstructionProto) -> bool:
    """Whether the value may be the index of a slice, which says nothing about what is in the caches."""
    return instruction.shape.element_type in _INTEGERS and not instruction.shape.dimensions


def is_read_outside(editor: Editor, groups: GroupFinder, value: int, members: AbstractSet[int]) -> bool:
    """Whether the value, or a bitcast of it, has a user besides these members."""
    pending = [value]
    while pending:
        identifier = pending.pop()
        if identifier == editor.root_id:
            return True
        for user in editor.users(identifier):
            if user in groups.producer_of:
                pending.append(user)
            elif user not in members:
                return True
    return False
