"""Call grouping: merges kernel calls into one group call, in which each intermediate value has a buffer of its own."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.buffer_assignment import separate_buffers
from hlo_dispatch.analysis.in_place_updates import writes_in_place, written_operands
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.kernel_call import KernelCall, OperandSlice
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.passes.call_groups.call_group import CallGroup, Member
from hlo_dispatch.passes.call_groups.legality import GroupFinder, is_read_outside
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported, resolve_hazards
from hlo_dispatch.process.environment_switches import groups_calls
from hlo_dispatch.vendor import registry

_Read = tuple[int, OperandSlice | None]
"""A value that a member reads: its id, and the slice of it where the member reads one."""
_is_disabled: ContextVar[bool] = ContextVar("without_call_groups", default=False)


@contextmanager
def without_call_groups() -> Generator[None]:
    """A context without call groups, so that a profile can time each kernel call."""
    token = _is_disabled.set(True)
    try:
        yield
    finally:
        _is_disabled.reset(token)


def group_calls(module: Module, context: PassContext) -> set[int]:
    """Group the kernel calls of every computation that control flow reaches."""
    if not groups_calls() or _is_disabled.get():
        return set()
    known = registry.kernels()
    group_kernels = {kernel.target: kernel.grouped_by for kernel in known.values() if kernel.grouped_by}
    foreign_targets = {k.target for k in known.values() if k.grouped_by and k.library != known[k.grouped_by].library}
    editors: list[Editor] = []
    own_targets = group_kernels.keys() - foreign_targets
    aliasing = BufferAliasing(module)
    for computation, small in module.control_flow_computations():
        if small or "custom-call" not in module.opcodes_of(computation.id):
            continue
        targets = [i.custom_call_target for i in computation.instructions[:]]
        if sum(target in own_targets for target in targets) < 2:
            continue
        emitter = _GroupEmitter(module, computation, group_kernels, foreign_targets, aliasing)
        try:
            editor = emitter.draft()
        except RewriteUnsupported:
            continue  # separate calls are correct, too
        if editor is not None:
            editors.append(editor)
            context.call_groups.update((group.name, group) for group in emitter.call_groups)
    return commit(module, editors)


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
        self._module, self._foreign_targets, self._aliasing = module, foreign_targets, aliasing
        self._editor = Editor(module, computation)
        self._finder = GroupFinder(self._editor, group_kernels)
        self._group_of_member: dict[int, int] = {}
        """Id of a member → id of its group call; set by `_emit_group`."""
        self.call_groups: list[CallGroup] = []

    def draft(self) -> Editor | None:
        """The computation with its group calls; None where it has none.

        Raises:
            RewriteUnsupported: buffers alias in a way that leaves no place for a copy.
        """
        editor = self._editor
        # Foreign members only connect the library's calls; a group of foreign members alone gains nothing.
        groups = [group for group in self._finder.groups() if not all(map(self._is_foreign, group))]
        for group in groups:
            self._emit_group(group)
        if not groups:
            return None
        # What waited for a member waits for its group call.
        editor.redirect_control_dependencies(self._group_of_member)
        editor.remove_dead_code()
        updates = {
            identifier: written_operands(self._module, instruction)
            for identifier, instruction in editor.instructions.items()
            if writes_in_place(self._module, instruction)
        }
        resolve_hazards(editor, self._aliasing.pairs(editor.computation), updates)
        return editor

    def _is_foreign(self, member: InstructionProto) -> bool:
        return member.custom_call_target in self._foreign_targets

    def _emit_group(self, group: list[InstructionProto]) -> None:
        calls = {member.id: self._module.kernel_call(member) for member in group}
        producer_of = self._finder.producer_of
        # A dictionary, since a loop that updates many arrays by products is one group with as many results.
        read_outside = [member for member in calls if is_read_outside(self._editor, self._finder, member, calls.keys())]
        results = {member: number for number, member in enumerate(read_outside)}
        reads = {member: [*_reads(call, producer_of, calls.keys())] for member, call in calls.items()}
        operands = [read for read in dict.fromkeys(itertools.chain(*reads.values())) if read[0] not in calls]
        intermediates = [member for member in calls if member not in results]
        written = [(member, None) for member in (*results, *intermediates)]
        numbers: dict[_Read, int] = {read: number for number, read in enumerate((*operands, *written))}
        members = tuple(
            Member(member.name, calls[i := member.id], tuple(numbers[read] for read in reads[i]), numbers[i, None])
            for member in group
        )
        buffers = separate_buffers([calls[member].results[0].bytes for member in intermediates])
        where = self._editor.computation.name
        call_group = CallGroup("", where, len(operands), len(results), members, buffers)
        first = next(member for member in group if not self._is_foreign(member))
        attributes = {"abi": registry.abi(), "library": calls[first.id].attributes["library"], **call_group.attributes}
        target = registry.kernels()[self._finder.members[group[0].id]].target
        shapes = tuple(calls[member].results[0] for member in results)
        builder = self._editor.after(group[-1].id, group[0])
        slices = {number: of for number, (_, of) in enumerate(operands) if of is not None}
        arrays = tuple(identifier for identifier, _ in operands)
        made = builder.kernel_call(
            KernelCall(target, arrays, Attributes(attributes), shapes, call_group.scratch, slices), "sequence"
        )
        predecessors = dict.fromkeys(before for member in group for before in member.control_predecessor_ids[:])
        made.control_predecessor_ids.extend(before for before in predecessors if before not in calls)
        self.call_groups.append(replace(call_group, name=made.name))
        self._group_of_member.update((member, made.id) for member in calls)
        self._replace_members(calls, results, made)

    def _replace_members(self, members: Iterable[int], results: Mapping[int, int], call: InstructionProto) -> None:
        """Replace the members by the group call and redirect the users of their results.

        Args:
            results: member → number of its result, of those whose results are the group call's.
        """
        editor = self._editor
        for member in members:
            for value in editor.users(member):
                number = results.get(member)
                if number is None:
                    self._erase_intermediate(value)
                    continue
                result = editor.mutable(value)
                editor.erase(value)
                result.operand_ids[:] = [call.id]
                result.tuple_index = number
                editor.insert(result, call.id)
            editor.erase(member)

    def _erase_intermediate(self, value: int) -> None:
        """Erase the get-tuple-element of an intermediate value, and its bitcasts."""
        for user in self._editor.users(value):
            if user in self._finder.producer_of:
                self._erase_intermediate(user)
        self._editor.erase(value)


def _reads(call: KernelCall, producer_of: Mapping[int, int], group: AbstractSet[int]) -> Iterator[_Read]:
    """What a member reads: results of members by the member, other values by themselves."""
    for number, operand in enumerate(call.operands):
        producer = producer_of.get(operand, operand)
        yield (producer if producer in group else operand), call.slices.get(number)
