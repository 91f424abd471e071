"""Editor: a draft of one computation whose instructions can be added, changed, replaced and erased."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.instruction_order import in_order
from hlo_dispatch.ir.kernel_call import KernelCall
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto

# Instructions without side effects, which are dead without users.
_VALUES_ONLY = frozenset(("bitcast", "constant", "dynamic-slice", "fusion", "slice"))


class Editor:
    """A draft of one computation, which `commit` writes back.

    An instruction of the computation is copied before it changes: a draft that is given up changes nothing.
    """

    def __init__(self, module: Module, computation: ComputationProto) -> None:
        self.module, self.computation = module, computation
        self.instructions: dict[int, InstructionProto] = {i.id: i for i in computation.instructions[:]}
        """By id; to change one, call `mutable`."""
        self.root_id = computation.root_id
        self.created: set[int] = set()
        """Ids of the instructions that the draft added."""
        self.rewired: set[int] = set()
        """Ids of the computation's own instructions whose operands were replaced."""
        self.computations: list[ComputationProto] = []
        """New computations that the instructions call, callees first."""
        self.positions: dict[int, float] = dict(zip(self.instructions, itertools.count(), strict=False))
        """Id → preferred position in the original order; erased instructions keep theirs."""
        self._mutable: set[int] = set()
        """Ids of the instructions that are the draft's own: created, or copied to be changed."""
        self._moved: set[int] = set()
        """Ids of those that were erased and inserted again."""
        self._users: dict[int, dict[int, int]] | None = None
        """Id → id of each user, and how often that one has it as an operand; made when users are first asked for."""

    # --- reading ----------------------------------------------------------------------------------

    @property
    def root(self) -> InstructionProto:
        return self.instructions[self.root_id]

    def parameters(self) -> list[InstructionProto]:
        return [instruction for instruction in self.instructions.values() if instruction.opcode == "parameter"]

    def users(self, identifier: int) -> list[int]:
        """Ids of the instructions that have this one as an operand, each once."""
        return list(self._index_of_users().get(identifier, ()))

    def ordered(self, preferred_predecessors: Mapping[int, AbstractSet[int]] | None = None) -> list[InstructionProto]:
        """The instructions in topological order, as close to the original order as possible (`in_order`)."""
        order = sorted(self.instructions, key=self.positions.__getitem__)
        if not preferred_predecessors and self._is_ordered(order):
            return [self.instructions[identifier] for identifier in order]
        return in_order(self.instructions, order, preferred_predecessors)

    def _is_ordered(self, order: Sequence[int]) -> bool:
        """Whether an order is topological; in the original one every operand precedes its users."""
        place = {identifier: number for number, identifier in enumerate(order)}
        users = {user for identifier in self._moved & place.keys() for user in self.users(identifier)}
        waiting = {identifier for identifier, proto in self.instructions.items() if proto.control_predecessor_ids}
        for identifier in self._mutable | users | waiting:
            proto, own = self.instructions[identifier], place[identifier]
            if any([place[earlier] >= own for earlier in (*proto.operand_ids[:], *proto.control_predecessor_ids[:])]):
                return False
        return True

    # --- adding -----------------------------------------------------------------------------------

    def before(self, identifier: int, origin: InstructionProto | None = None) -> InstructionBuilder:
        """A builder that inserts instructions before this one."""
        position = self.positions[identifier] - 0.5
        return InstructionBuilder(self.module, self.computation, lambda added: self._insert(added, position), origin)

    def after(self, identifier: int, origin: InstructionProto | None = None) -> InstructionBuilder:
        """A builder that inserts instructions after this one, or before it where it reads them."""
        position = self.positions[identifier]
        return InstructionBuilder(self.module, self.computation, lambda added: self._insert(added, position), origin)

    def first(self) -> InstructionBuilder:
        """A builder that inserts instructions before all others."""
        return InstructionBuilder(self.module, self.computation, lambda added: self._insert(added, -1))

    def last(self) -> InstructionBuilder:
        """A builder that inserts instructions after all others."""
        position = len(self.computation.instructions)
        return InstructionBuilder(self.module, self.computation, lambda added: self._insert(added, position))

    def insert(self, instruction: InstructionProto, near: int) -> None:
        """Insert an instruction, as `after` does; it may be one that was erased."""
        self._insert(instruction, self.positions[near])

    def _insert(self, instruction: InstructionProto, position: float) -> None:
        identifier = instruction.id
        if identifier in self.positions:
            self._moved.add(identifier)
        self.instructions[identifier] = instruction
        self.positions[identifier] = position
        self.created.add(identifier)
        self._mutable.add(identifier)
        if self._users is not None:
            self._index(identifier, instruction.operand_ids[:])

    # --- changing ---------------------------------------------------------------------------------

    def mutable(self, identifier: int) -> InstructionProto:
        """The instruction, to change anything but its operands."""
        if identifier not in self._mutable:
            self._mutable.add(identifier)
            self.instructions[identifier] = copy_of(self.instructions[identifier])
        return self.instructions[identifier]

    def set_operands(self, identifier: int, operands: Sequence[int]) -> None:
        """Replace all operands of an instruction."""
        instruction = self.mutable(identifier)
        if self._users is not None:
            self._forget(identifier, instruction.operand_ids[:])
            self._index(identifier, operands)
        instruction.operand_ids[:] = operands
        if identifier not in self.created:
            self.rewired.add(identifier)

    def set_operand(self, identifier: int, number: int, operand: int) -> None:
        """Replace one operand of an instruction; the other ones, thousands in a tuple, are not indexed again."""
        operands = self.mutable(identifier).operand_ids
        before, operands[number] = operands[number], operand
        if self._users is not None:
            self._forget(identifier, (before,))
            self._index(identifier, (operand,))
        if identifier not in self.created:
            self.rewired.add(identifier)

    def replace_operands(self, identifier: int, replacement: Mapping[int, int]) -> None:
        """Replace some operands of an instruction: id → id of the operand in its place."""
        operands = self.instructions[identifier].operand_ids[:]
        self.set_operands(identifier, [replacement.get(operand, operand) for operand in operands])

    def replace_all_uses_with(self, identifier: int, other: int) -> None:
        """Make every user of an instruction, and the computation's result, use another one; it has no users then."""
        for user in self.users(identifier):
            if user != other:
                operands = self.instructions[user].operand_ids[:]
                number = -1
                for _ in range(operands.count(identifier)):
                    number = operands.index(identifier, number + 1)
                    self.set_operand(user, number, other)
        if self.root_id == identifier:
            self.root_id = other

    def redirect_control_dependencies(self, replacement: Mapping[int, int]) -> None:
        """Make what waits for an instruction wait for another one: id → id."""
        for identifier, instruction in list(self.instructions.items()):
            before = instruction.control_predecessor_ids[:]
            if before and not replacement.keys().isdisjoint(before):
                others = dict.fromkeys(replacement.get(earlier, earlier) for earlier in before)
                self.mutable(identifier).control_predecessor_ids[:] = [*others]

    def add_control_dependency(self, later: int, earlier: int) -> None:
        """Make one instruction run after another one."""
        self.mutable(later).control_predecessor_ids.append(earlier)

    def write(self, identifier: int, call: KernelCall) -> None:
        """Make an instruction another kernel call."""
        if self.instructions[identifier].operand_ids[:] != list(call.arguments):
            self.set_operands(identifier, call.arguments)
        self.module.write(call, self.mutable(identifier))

    # --- erasing ----------------------------------------------------------------------------------

    def erase(self, identifier: int) -> None:
        """Remove an instruction; what uses it must be changed or erased, too."""
        instruction = self.instructions.pop(identifier)
        self.created.discard(identifier)
        self._mutable.discard(identifier)
        if self._users is not None:
            self._forget(identifier, instruction.operand_ids[:])

    def remove_dead_code(self, pure: Collection[int] = ()) -> None:
        """Erase the dead instructions without side effects: bitcasts, constants, fusions …, and those in `pure`."""
        users = self._index_of_users()
        dead = [i for i in self.instructions if not users.get(i) and self._is_dead(i, pure)]
        if not dead:
            return
        predecessors = {i: found for i, p in self.instructions.items() if (found := p.control_predecessor_ids[:])}
        waiting = Counter(itertools.chain(*predecessors.values()))
        while dead:
            identifier = dead.pop()
            if identifier not in self.instructions or waiting[identifier]:
                continue
            waiting.subtract(predecessors.get(identifier, ()))
            earlier = {*self.instructions[identifier].operand_ids[:], *predecessors.get(identifier, ())}
            self.erase(identifier)
            dead += [other for other in earlier if self._is_dead(other, pure)]

    def _is_dead(self, identifier: int, pure: Collection[int]) -> bool:
        """Whether an instruction has neither users nor side effects; another one may wait for it."""
        if identifier not in self.instructions or self.users(identifier) or identifier == self.root_id:
            return False
        return identifier in pure or self.instructions[identifier].opcode in _VALUES_ONLY

    def keep_reachable_from_root(self) -> None:
        """Erase the instructions that the root does not depend on, parameters included."""
        live = {self.root_id}
        pending = list(live)
        while pending:
            instruction = self.instructions[pending.pop()]
            for earlier in (*instruction.operand_ids[:], *instruction.control_predecessor_ids[:]):
                if earlier not in live:
                    live.add(earlier)
                    pending.append(earlier)
        if len(live) != len(self.instructions):
            for identifier in [identifier for identifier in self.instructions if identifier not in live]:
                self.erase(identifier)

    # --- writing back -----------------------------------------------------------------------------

    def write_to(self, computation: ComputationProto) -> None:
        """Write the draft's instructions, in order, to its computation, or to that one of a copy of the module.

        Those that the draft left alone stay where they are: copying all takes longer than most drafts.
        """
        ordered = self.ordered()
        place = {instruction.id: number for number, instruction in enumerate(ordered)}
        kept = place.keys() - self._mutable if computation is self.computation else frozenset[int]()
        messages = computation.instructions
        # A message that leaves a repeated field stays valid while it is referred to; sorting the field copies none.
        messages.sort(key=lambda message: message.id not in kept)
        del messages[len(kept) :]
        messages.extend([instruction for instruction in ordered if instruction.id not in kept])
        messages.sort(key=lambda message: place[message.id])
        computation.root_id = self.root_id

    # --- the index of users -----------------------------------------------------------------------

    def _index_of_users(self) -> dict[int, dict[int, int]]:
        if self._users is None:
            users: dict[int, dict[int, int]] = {}
            for user, instruction in self.instructions.items():
                for operand in instruction.operand_ids[:]:
                    of_operand = users.setdefault(operand, {})
                    of_operand[user] = of_operand.get(user, 0) + 1
            self._users = users
        return self._users

    def _index(self, user: int, operands: Iterable[int]) -> None:
        assert self._users is not None
        for operand in operands:
            users = self._users.setdefault(operand, {})
            users[user] = users.get(user, 0) + 1

    def _forget(self, user: int, operands: Iterable[int]) -> None:
        assert self._users is not None
        for operand in operands:
            users = self._users[operand]
            users[user] -= 1
            if not users[user]:
                del users[user]


def commit(module: Module, editors: Collection[Editor]) -> set[int]:
    """Write drafts back; their new computations precede them, and computations that nothing calls are dropped.

    Returns:
        ids of the computations that are new or changed.
    """
    if not editors:
        return set()
    drafts = {editor.computation.id: editor for editor in editors}
    computations = module.proto.computations
    order: dict[int, int] = {}
    for computation in computations[:]:
        if (editor := drafts.get(computation.id)) is not None:
            editor.write_to(computation)
            computations.extend(editor.computations)
            for new in editor.computations:
                order[new.id] = len(order)
        order[computation.id] = len(order)
    added = frozenset[str]().union(*map(_added_opcodes, editors))
    module.index(added, drafts)
    reached = module.reached()
    for place in reversed(range(len(computations))):
        if computations[place].id not in reached:
            del computations[place]
    # Sorting in place copies no message.
    computations.sort(key=lambda computation: order[computation.id])
    module.index(added)
    return drafts.keys() | {new.id for editor in editors for new in editor.computations}


def _added_opcodes(editor: Editor) -> set[str]:
    """Opcodes of what a draft has added or may have changed."""
    inside = {instruction.opcode for new in editor.computations for instruction in new.instructions[:]}
    return inside | {editor.instructions[identifier].opcode for identifier in editor.created}
