"""Which kernel calls of a computation can be one call: whose values flow among themselves, with nothing in between.

Convexity first: nothing between two members may depend on one and feed the other. Every value gets a stage, which goes
up by one wherever a member's value is read by what is no member of that kind. A way out of the members of a stage leads
to a later stage, and never back.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from hlo_dispatch.ir.schema import ComputationProto, InstructionProto

_GIVEN = frozenset(("parameter", "constant"))


class Groups:
    """The groups of one computation."""

    def __init__(self, computation: ComputationProto, kernels: Mapping[str, str]) -> None:
        """Look at a computation, whose operands stand before their users.

        Args:
            kernels: target of a custom-call that may be a member → the kernel that would hold it.
        """
        self.instructions = {instruction.id: instruction for instruction in computation.instructions[:]}
        self.users: dict[int, list[InstructionProto]] = {}
        self._root = computation.root_id
        self._waited_for: set[int] = set()
        for instruction in self.instructions.values():
            self._waited_for.update(instruction.control_predecessor_ids[:])
            for operand in instruction.operand_ids[:]:
                self.users.setdefault(operand, []).append(instruction)
        self.members = {
            i.id: kernels[i.custom_call_target] for i in self.instructions.values() if self._joins(i, kernels)
        }
        """Call that may be a member → the kernel that would hold it."""
        self.origin: dict[int, int] = {}
        """Value → the member that makes it, under whatever name and shape."""

    def found(self) -> list[list[InstructionProto]]:
        """Calls that are to be one, at least two in each group, in their order."""
        if len(self.members) < 2:
            return []
        stages = self._stages()
        parent = {member: member for member in self.members}

        def leader(member: int) -> int:
            while parent[member] != member:
                parent[member] = member = parent[parent[member]]
            return member

        readers: dict[tuple[int, int, str], int] = {}
        waits_of = {member: self.instructions[member].control_predecessor_ids[:] for member in self.members}
        for member, holder in self.members.items():
            for operand in self.instructions[member].operand_ids[:]:
                origin = self.origin.get(operand, operand)
                if self.instructions[origin].opcode not in _GIVEN:
                    # What reads the same value is near in time, too.
                    first = readers.setdefault((origin, stages[member], holder), member)
                    parent[leader(member)] = leader(first)
            # One that waits for another of its stage is in its group: two groups might wait for each other.
            for before in (*self.instructions[member].operand_ids[:], *waits_of[member]):
                origin = self.origin.get(before, before)
                if self.members.get(origin) == holder and stages[origin] == stages[member]:
                    parent[leader(member)] = leader(origin)
        groups: dict[int, list[InstructionProto]] = {}
        for member in self.members:
            groups.setdefault(leader(member), []).append(self.instructions[member])
        return [group for group in groups.values() if len(group) > 1]

    def _joins(self, instruction: InstructionProto, kernels: Mapping[str, str]) -> bool:
        if instruction.opcode != "custom-call" or instruction.custom_call_target not in kernels:
            return False
        if instruction.id == self._root:
            return False
        users = self.users.get(instruction.id, [])
        return all(user.opcode == "get-tuple-element" and user.tuple_index == 0 for user in users)

    def _stages(self) -> dict[int, int]:
        stages: dict[int, int] = {}
        for identifier, instruction in self.instructions.items():
            origin = self._origin_of(instruction)
            if origin is not None:
                self.origin[identifier] = origin
                stages[identifier] = stages[origin]
                continue
            holder = self.members.get(identifier)
            before = (*instruction.operand_ids[:], *instruction.control_predecessor_ids[:])
            stages[identifier] = max((stages[o] + (self._holder(o) not in (None, holder)) for o in before), default=0)
        return stages

    def _holder(self, value: int) -> str | None:
        """The kernel that would hold the call which makes the value, or is what was asked for."""
        return self.members.get(self.origin.get(value, value))

    def _origin_of(self, instruction: InstructionProto) -> int | None:
        # What waits for something else is no mere name.
        if instruction.control_predecessor_ids or instruction.id in self._waited_for:
            return None
        if instruction.opcode == "get-tuple-element" and instruction.operand_ids[0] in self.members:
            return instruction.operand_ids[0]
        return self.origin.get(instruction.operand_ids[0]) if instruction.opcode == "bitcast" else None


def is_read_outside(groups: Groups, root: int, value: int, members: AbstractSet[int]) -> bool:
    """Whether anything but these members reads the value, under whatever name."""
    waiting = [value]
    while waiting:
        identifier = waiting.pop()
        if identifier == root:
            return True
        for user in groups.users.get(identifier, ()):
            if user.id in groups.origin:
                waiting.append(user.id)
            elif user.id not in members:
                return True
    return False
