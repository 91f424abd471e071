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
_FORWARDS = frozenset(("bitcast", "get-tuple-element"))
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
        self._operands = {identifier: proto.operand_ids[:] for identifier, proto in self.instructions.items()}
        self._predecessors = {
            identifier: found
            for identifier, proto in self.instructions.items()
            if (found := proto.control_predecessor_ids[:])
        }
        """Id of an instruction with control predecessors → their ids."""
        self._waited_for = set[int]().union(*self._predecessors.values())
        calls = [i for i in self.instructions.values() if i.opcode == "custom-call"]
        self.members = {i.id: kernels[i.custom_call_target] for i in calls if self._is_eligible(i, kernels)}
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
        for member, group_kernel in self.members.items():
            for operand in self._operands[member]:
                producer = self.producer_of.get(operand, operand)
                if self.instructions[producer].opcode not in _INPUTS and not _is_index(self.instructions[producer]):
                    # Readers of one value run close to each other.
                    first = readers.setdefault((producer, stages[member], group_kernel), member)
                    parent[representative(member)] = representative(first)
            # A call that waits for another one of its stage joins its group, or two groups might wait for each other.
            for predecessor in (*self._operands[member], *self._predecessors.get(member, ())):
                producer = self.producer_of.get(predecessor, predecessor)
                if self.members.get(producer) == group_kernel and stages[producer] == stages[member]:
                    parent[representative(member)] = representative(producer)
        groups: dict[int, list[InstructionProto]] = {}
        for member in self.members:
            groups.setdefault(representative(member), []).append(self.instructions[member])
        return [group for group in groups.values() if len(group) > 1]

    def _is_eligible(self, instruction: InstructionProto, kernels: Mapping[str, str]) -> bool:
        if instruction.custom_call_target not in kernels or instruction.id == self._editor.root_id:
            return False
        users = [self.instructions[user] for user in self._editor.users(instruction.id)]
        return all(user.opcode == "get-tuple-element" and user.tuple_index == 0 for user in users)

    def _stages(self) -> dict[int, int]:
        stages: dict[int, int] = {}
        kernel_of = dict(self.members)
        """Id of a call that may be a member, or of a value that one produces → the group kernel."""
        for identifier, instruction in self.instructions.items():
            producer = self._forwarded_producer(instruction)
            if producer is not None:
                self.producer_of[identifier] = producer
                kernel_of[identifier] = self.members[producer]
                stages[identifier] = stages[producer]
                continue
            group_kernel, stage = self.members.get(identifier), 0
            for predecessor in (*self._operands[identifier], *self._predecessors.get(identifier, ())):
                leaves_members = kernel_of.get(predecessor, group_kernel) != group_kernel
                stage = max(stage, stages[predecessor] + leaves_members)
            stages[identifier] = stage
        return stages

    def _forwarded_producer(self, instruction: InstructionProto) -> int | None:
        # An instruction with control dependencies does not only forward a value.
        opcode = instruction.opcode
        if opcode not in _FORWARDS:
            return None
        identifier = instruction.id
        if identifier in self._predecessors or identifier in self._waited_for:
            return None
        (operand,) = self._operands[identifier]
        if opcode == "bitcast":
            return self.producer_of.get(operand)
        return operand if operand in self.members else None


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
