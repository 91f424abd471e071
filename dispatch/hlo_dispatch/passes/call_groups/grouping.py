"""Call grouping: merges kernel calls into one group call, with the members' attributes and each value's offset."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
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
from hlo_dispatch.passes.call_groups.buffer_assignment import assign_buffers
from hlo_dispatch.passes.call_groups.in_place_sum import in_place_sums
from hlo_dispatch.passes.call_groups.legality import GroupFinder, is_read_outside
from hlo_dispatch.passes.call_groups.live_ranges import live_ranges
from hlo_dispatch.passes.edit import replace_computations
from hlo_dispatch.passes.instruction_order import in_order, without_dead_code
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.passes.write_after_read_hazards import Draft, RewriteUnsupported, resolve_hazards
from hlo_dispatch.process.environment_switches import groups_calls
from hlo_dispatch.report import CallSequence
from hlo_dispatch.vendor import registry

_is_disabled: ContextVar[bool] = ContextVar("without_call_groups", default=False)


@contextmanager
def without_call_groups() -> Generator[None]:
    """A context without call groups, so that a profile can time each kernel call."""
    token = _is_disabled.set(True)
    try:
        yield
    finally:
        _is_disabled.reset(token)


@dataclass
class CallGroups:
    """The call groups of one module."""

    computations: set[int] = field(default_factory=set[int])
    """Ids of the computations that changed."""
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a member call → name of its call group."""
    sequences: list[CallSequence] = field(default_factory=list[CallSequence])


def with_call_groups(serialized: bytes) -> tuple[bytes, CallGroups]:
    """Group the kernel calls of a serialized module; returns the module and its call groups.

    Raises:
        ModuleError: the bytes are not a module.
    """
    module = Module.from_bytes(serialized)
    found = group_calls(module)
    if not found.computations:
        return serialized, found
    verify(module, found.computations)
    return module.to_bytes(), found


def group_calls(module: Module) -> CallGroups:
    """Group the kernel calls of every computation that control flow reaches; edits `module` in place."""
    result = CallGroups()
    if not groups_calls() or _is_disabled.get():
        return result
    known = registry.kernels()
    group_kernels = {kernel.target: kernel.grouped_by for kernel in known.values() if kernel.grouped_by}
    foreign_targets = {k.target for k in known.values() if k.grouped_by and k.library != known[k.grouped_by].library}
    edits: dict[int, Edit] = {}
    aliasing = BufferAliasing(module)
    for computation, small in module.control_flow_computations():
        if (
            small
            or sum(i.custom_call_target in group_kernels.keys() - foreign_targets for i in computation.instructions[:])
            < 2
        ):
            continue
        emitter = _GroupEmitter(module, computation, group_kernels, foreign_targets, aliasing)
        try:
            edit = emitter.edit()
        except RewriteUnsupported:
            continue  # separate calls are correct, too
        if edit is not None:
            edits[computation.id] = edit
            result.calls.update(emitter.names)
            result.sequences += emitter.sequences
    if edits:
        replace_computations(module, edits)
        result.computations.update(edits)
    return result


class _GroupEmitter:
    """Emits the group calls of one computation."""

    def __init__(
        self,
        module: Module,
        computation: ComputationProto,
        group_kernels: Mapping[str, str],
        foreign_targets: AbstractSet[str],
        aliasing: BufferAliasing,
    ) -> None:
        """
        Args:
            group_kernels: target of a custom-call that may be a member → the group kernel.
            foreign_targets: targets of those calls that another library computes than the group kernel's.
        """
        self._module, self._computation, self._foreign_targets = module, computation, foreign_targets
        self._aliasing = aliasing
        self._finder = GroupFinder(computation, group_kernels)
        self._fresh = itertools.count(max(self._finder.instructions) + 1)
        self._protos = dict(self._finder.instructions)
        self._positions = {identifier: position for position, identifier in enumerate(self._protos)}
        self._created: set[int] = set()
        self._group_of_member: dict[int, int] = {}
        """Id of a member → id of its group call; set by `_emit_group`."""
        self.names: dict[str, str] = {}
        self.sequences: list[CallSequence] = []

    def edit(self) -> Edit | None:
        """The computation with its group calls; None where it has none.

        Raises:
            RewriteUnsupported: buffers alias in a way that leaves no place for a copy.
        """
        # Foreign members only connect the library's calls; a group of foreign members alone gains nothing.
        groups = [group for group in self._finder.groups() if not all(map(self._is_foreign, group))]
        for group in groups:
            self._emit_group(group)
        if not groups:
            return None
        self._redirect_control_dependencies()
        root = self._computation.root_id
        ordered = in_order(self._protos, self._positions)
        alive = {proto.id: proto for proto in without_dead_code(ordered, (), root)}
        updates = {i: written_operands(self._module, p) for i, p in alive.items() if writes_in_place(self._module, p)}
        draft = Draft(alive, root, self._created & alive.keys(), updates, self._positions)
        resolve_hazards(draft, self._aliasing.pairs(self._computation), self._fresh_id_and_name)
        positions = dict(self._positions)
        for copy, near in draft.added:
            positions[copy.id] = positions[near]
        return Edit(in_order(draft.instructions, positions), draft.root_id)

    def _is_foreign(self, member: InstructionProto) -> bool:
        return member.custom_call_target in self._foreign_targets

    def _redirect_control_dependencies(self) -> None:
        """Replace control dependencies on members by dependencies on their group calls."""
        for identifier, proto in list(self._protos.items()):
            before = proto.control_predecessor_ids[:]
            if any(earlier in self._group_of_member for earlier in before):
                changed = copy_of(proto)
                del changed.control_predecessor_ids[:]
                changed.control_predecessor_ids.extend(dict.fromkeys(self._group_of_member.get(b, b) for b in before))
                self._protos[identifier] = changed

    def _fresh_id_and_name(self, stem: str) -> tuple[int, str]:
        return next(self._fresh), self._module.fresh_name(stem)

    def _emit_group(self, group: list[InstructionProto]) -> None:
        members = {member.id for member in group}
        root, producer_of = self._computation.root_id, self._finder.producer_of
        results = [member for member in group if is_read_outside(self._finder, root, member.id, members)]
        inputs = [o for member in group for o in member.operand_ids[:] if producer_of.get(o) not in members]
        operands = list(dict.fromkeys(inputs))
        read_outside = {member.id for member in results}
        intermediates = [member for member in group if member.id not in read_outside]
        producers = (*results, *intermediates)
        numbers = {
            operand: number for number, operand in enumerate((*operands, *(producer.id for producer in producers)))
        }
        sums = in_place_sums(group, intermediates, producer_of)
        buffers = assign_buffers(
            live_ranges(group, intermediates, producer_of, {member: found.producer for member, found in sums.items()})
        )
        # Members run one after the other and share their scratch memory.
        scratch = buffers.bytes + max(member.shape.tuple_shapes[-1].dimensions[0] for member in group)
        proto = self._call(group, operands, results, scratch)
        first = next(member for member in group if not self._is_foreign(member))
        group_attributes = {
            "abi": registry.abi(),
            "library": from_text(first.backend_config.decode())["library"],
            "scratch": scratch,
            "operands": len(operands),
            "results": len(results),
            "members": len(group),
            "offsets": buffers.offsets,
        }
        texts = [to_text(group_attributes)[:-1]]
        for step, member in enumerate(group):
            values = [numbers[producer_of[o] if producer_of.get(o) in members else o] for o in member.operand_ids[:]]
            member_attributes = {"target": member.custom_call_target, "inputs": values, "output": numbers[member.id]}
            text = member.backend_config.decode()
            if (in_place_sum := sums.get(member.id)) is not None:
                member_attributes["accumulated"] = values.pop(in_place_sum.operand)
                text = in_place_sum.attributes
            texts.append(f"member_{step} = {to_text(member_attributes)[:-1]}, {text[1:]}")
            self.names[member.name] = proto.name
        proto.backend_config = (", ".join(texts) + "}").encode()
        where = self._computation.name
        self.sequences.append(CallSequence(proto.name, where, len(group), len(intermediates), scratch))
        self._replace_members(group, results, proto)

    def _call(
        self, group: list[InstructionProto], operands: list[int], results: list[InstructionProto], scratch: int
    ) -> InstructionProto:
        """The group call without its attributes."""
        proto = InstructionProto(opcode="custom-call", id=next(self._fresh), name=self._module.fresh_name("sequence"))
        proto.metadata.CopyFrom(group[0].metadata)
        proto.operand_ids.extend(operands)
        predecessors = dict.fromkeys(before for member in group for before in member.control_predecessor_ids[:])
        members = {member.id for member in group}
        proto.control_predecessor_ids.extend(before for before in predecessors if before not in members)
        proto.custom_call_target = registry.kernels()[self._finder.members[group[0].id]].target
        proto.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
        proto.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
        for member in results:
            proto.shape.tuple_shapes.append(member.shape.tuple_shapes[0])
        proto.shape.tuple_shapes.append(row_major("u8", (scratch,)).to_proto())
        return proto

    def _replace_members(
        self, group: list[InstructionProto], results: list[InstructionProto], proto: InstructionProto
    ) -> None:
        """Replace the members by the group call and redirect the users of their results."""
        number_of = {member.id: number for number, member in enumerate(results)}
        self._positions[proto.id] = self._positions[group[-1].id]
        for member in group:
            del self._protos[member.id]
            self._group_of_member[member.id] = proto.id
            for user in self._finder.users.get(member.id, ()):
                if member.id not in number_of:
                    self._drop_intermediate(user.id)
                    continue
                result = copy_of(user)
                del result.operand_ids[:]
                result.operand_ids.append(proto.id)
                result.tuple_index = number_of[member.id]
                self._protos[result.id] = result
                self._positions[result.id] = self._positions[proto.id]
                self._created.add(result.id)
        self._protos[proto.id] = proto
        self._created.add(proto.id)

    def _drop_intermediate(self, value: int) -> None:
        """Drop the get-tuple-element of an intermediate value, and its bitcasts."""
        pending = [value]
        while pending:
            identifier = pending.pop()
            if self._protos.pop(identifier, None) is not None:
                pending += [
                    user.id for user in self._finder.users.get(identifier, ()) if user.id in self._finder.producer_of
                ]
