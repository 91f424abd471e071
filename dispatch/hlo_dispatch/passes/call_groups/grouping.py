"""Runs of kernel calls become one call that holds them: the members' own attributes, and where each value is."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from hlo_dispatch.analysis.buffer_aliasing import Sharing
from hlo_dispatch.analysis.in_place_updates import writes_in_place, written_operands
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import (
    CUSTOM_CALL_API_TYPED_FFI,
    ELEMENT_TYPE_NUMBERS,
    ComputationProto,
    InstructionProto,
)
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.backend_config import from_text, to_text
from hlo_dispatch.passes.call_groups.buffer_assignment import arranged
from hlo_dispatch.passes.call_groups.in_place_sum import accumulations
from hlo_dispatch.passes.call_groups.legality import Groups, is_read_outside
from hlo_dispatch.passes.call_groups.live_ranges import lives
from hlo_dispatch.passes.edit import put_back
from hlo_dispatch.passes.instruction_order import in_order, needed
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.passes.write_after_read_hazards import CannotRebuild, Draft, protect
from hlo_dispatch.process.environment_switches import joins_calls
from hlo_dispatch.report import CallSequence
from hlo_dispatch.vendor import registry

_apart: ContextVar[bool] = ContextVar("calls_apart", default=False)


@contextmanager
def calls_apart() -> Generator[None]:
    """In this context every kernel call stays one of its own, so that each can be timed."""
    token = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(token)


@dataclass
class Joined:
    """What became of a module."""

    computations: set[int] = field(default_factory=set[int])
    """Ids of those that changed."""
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a call that is a member now → its sequence's."""
    sequences: list[CallSequence] = field(default_factory=list[CallSequence])


def joined(serialized: bytes) -> tuple[bytes, Joined]:
    """A module with its runs of kernel calls joined, and what became of it.

    Raises:
        ModuleError: the bytes are not a module.
    """
    module = Module.from_bytes(serialized)
    found = join(module)
    if not found.computations:
        return serialized, found
    verify(module, found.computations)
    return module.to_bytes(), found


def join(module: Module) -> Joined:
    """Join runs of kernel calls, wherever a computation has some; edits `module` in place."""
    result = Joined()
    if not joins_calls() or _apart.get():
        return result
    known = registry.kernels()
    kernels = {kernel.target: kernel.joined_by for kernel in known.values() if kernel.joined_by}
    guests = {k.target for k in known.values() if k.joined_by and k.library != known[k.joined_by].library}
    edits: dict[int, Edit] = {}
    sharing = Sharing(module)
    for computation, small in module.control_flow_computations():
        if small or sum(i.custom_call_target in kernels.keys() - guests for i in computation.instructions[:]) < 2:
            continue
        joiner = _Joiner(module, computation, kernels, guests, sharing)
        try:
            edit = joiner.edit()
        except CannotRebuild:
            continue  # each call by itself is right as well
        if edit is not None:
            edits[computation.id] = edit
            result.calls.update(joiner.names)
            result.sequences += joiner.sequences
    if edits:
        put_back(module, edits)
        result.computations.update(edits)
    return result


class _Joiner:
    """Writes the sequences of one computation."""

    def __init__(
        self,
        module: Module,
        computation: ComputationProto,
        kernels: Mapping[str, str],
        guests: AbstractSet[str],
        sharing: Sharing,
    ) -> None:
        """
        Args:
            kernels: target of a custom-call that may be a member → the kernel that would hold it.
            guests: those of them that another library computes than the one whose sequences they are.
        """
        self._module, self._computation, self._guests = module, computation, guests
        self._sharing = sharing
        self._groups = Groups(computation, kernels)
        self._fresh = itertools.count(max(self._groups.instructions) + 1)
        self._protos = dict(self._groups.instructions)
        self._place = {identifier: position for position, identifier in enumerate(self._protos)}
        self._made: set[int] = set()
        self._sequence_of: dict[int, int] = {}
        """Member → the sequence that holds it; after `_join`."""
        self.names: dict[str, str] = {}
        self.sequences: list[CallSequence] = []

    def edit(self) -> Edit | None:
        """The computation with its sequences; None where it has none.

        Raises:
            CannotRebuild: buffers are shared in a way that leaves no place for a copy.
        """
        # Calls of ours stand between the library's and gain nothing among themselves.
        groups = [group for group in self._groups.found() if not all(map(self._is_guest, group))]
        for group in groups:
            self._join(group)
        if not groups:
            return None
        self._rename_waited_for()
        root = self._computation.root_id
        ordered = in_order(self._protos, self._place)
        alive = {proto.id: proto for proto in needed(ordered, (), root)}
        updates = {i: written_operands(self._module, p) for i, p in alive.items() if writes_in_place(self._module, p)}
        draft = Draft(alive, root, self._made & alive.keys(), updates, self._place)
        protect(draft, self._sharing.pairs(self._computation), self._name)
        place = dict(self._place)
        for copy, near in draft.added:
            place[copy.id] = place[near]
        return Edit(in_order(draft.instructions, place), draft.root_id)

    def _is_guest(self, member: InstructionProto) -> bool:
        return member.custom_call_target in self._guests

    def _rename_waited_for(self) -> None:
        """What waited for a member waits for its sequence."""
        for identifier, proto in list(self._protos.items()):
            before = proto.control_predecessor_ids[:]
            if any(earlier in self._sequence_of for earlier in before):
                changed = copy_of(proto)
                del changed.control_predecessor_ids[:]
                changed.control_predecessor_ids.extend(dict.fromkeys(self._sequence_of.get(b, b) for b in before))
                self._protos[identifier] = changed

    def _name(self, stem: str) -> tuple[int, str]:
        return next(self._fresh), self._module.fresh_name(stem)

    def _join(self, group: list[InstructionProto]) -> None:
        members = {member.id for member in group}
        root, origin = self._computation.root_id, self._groups.origin
        outside = [member for member in group if is_read_outside(self._groups, root, member.id, members)]
        given = [o for member in group for o in member.operand_ids[:] if origin.get(o) not in members]
        operands = list(dict.fromkeys(given))
        read_outside = {member.id for member in outside}
        inside = [member for member in group if member.id not in read_outside]
        makers = (*outside, *inside)
        numbers = {operand: number for number, operand in enumerate((*operands, *(maker.id for maker in makers)))}
        adding = accumulations(group, inside, origin)
        arena = arranged(lives(group, inside, origin, {member: found.value for member, found in adding.items()}))
        # Members run one after the other, and share what they work in.
        scratch = arena.bytes + max(member.shape.tuple_shapes[-1].dimensions[0] for member in group)
        proto = self._call(group, operands, outside, scratch)
        first = next(member for member in group if not self._is_guest(member))
        head = {
            "abi": registry.abi(),
            "library": from_text(first.backend_config.decode())["library"],
            "scratch": scratch,
            "operands": len(operands),
            "results": len(outside),
            "members": len(group),
            "offsets": arena.offsets,
        }
        texts = [to_text(head)[:-1]]
        for step, member in enumerate(group):
            values = [numbers[origin[o] if origin.get(o) in members else o] for o in member.operand_ids[:]]
            about = {"target": member.custom_call_target, "inputs": values, "output": numbers[member.id]}
            text = member.backend_config.decode()
            if (added := adding.get(member.id)) is not None:
                about["accumulated"] = values.pop(added.operand)
                text = added.attributes
            texts.append(f"member_{step} = {to_text(about)[:-1]}, {text[1:]}")
            self.names[member.name] = proto.name
        proto.backend_config = (", ".join(texts) + "}").encode()
        where = self._computation.name
        self.sequences.append(CallSequence(proto.name, where, len(group), len(inside), scratch))
        self._exchange(group, outside, proto)

    def _call(
        self, group: list[InstructionProto], operands: list[int], outside: list[InstructionProto], scratch: int
    ) -> InstructionProto:
        """The sequence, without its attributes."""
        proto = InstructionProto(opcode="custom-call", id=next(self._fresh), name=self._module.fresh_name("sequence"))
        proto.metadata.CopyFrom(group[0].metadata)
        proto.operand_ids.extend(operands)
        waits_for = dict.fromkeys(before for member in group for before in member.control_predecessor_ids[:])
        members = {member.id for member in group}
        proto.control_predecessor_ids.extend(before for before in waits_for if before not in members)
        proto.custom_call_target = registry.kernels()[self._groups.members[group[0].id]].target
        proto.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
        proto.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
        for member in outside:
            proto.shape.tuple_shapes.append(member.shape.tuple_shapes[0])
        proto.shape.tuple_shapes.append(row_major("u8", (scratch,)).to_proto())
        return proto

    def _exchange(
        self, group: list[InstructionProto], outside: list[InstructionProto], proto: InstructionProto
    ) -> None:
        """The sequence in place of its members: what took their results takes its results."""
        number_of = {member.id: number for number, member in enumerate(outside)}
        self._place[proto.id] = self._place[group[-1].id]
        for member in group:
            del self._protos[member.id]
            self._sequence_of[member.id] = proto.id
            for user in self._groups.users.get(member.id, ()):
                if member.id not in number_of:
                    self._drop(user.id)
                    continue
                taken = copy_of(user)
                del taken.operand_ids[:]
                taken.operand_ids.append(proto.id)
                taken.tuple_index = number_of[member.id]
                self._protos[taken.id] = taken
                self._place[taken.id] = self._place[proto.id]
                self._made.add(taken.id)
        self._protos[proto.id] = proto
        self._made.add(proto.id)

    def _drop(self, value: int) -> None:
        """A name of what only members see, and its other names."""
        waiting = [value]
        while waiting:
            identifier = waiting.pop()
            if self._protos.pop(identifier, None) is not None:
                waiting += [
                    user.id for user in self._groups.users.get(identifier, ()) if user.id in self._groups.origin
                ]
