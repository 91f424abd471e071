"""Aliasing hazards (write-after-read): control dependencies and copies that keep aliased buffers correct.

XLA has already decided which values alias: a while body's parameter and its result, a donated input and its output, the
operand and result of an in-place update. Its copy insertion covered *its* instructions; kernel calls read more operands
at once, and values further up. For every buffer that a created instruction reads or writes:

  parameter → … → result     every reader of the parameter, and of what updates make of it in its buffer, must run
                             before the instruction that defines the result, or be that one, as an in-place update;
                             where a created reader does neither, the result is copied into place afterwards, and so
                             is one that no instruction computes: a created parameter has a buffer of its own
  value → in-place update    every reader of the value must run before the update: a control dependency ensures
                             it, or, where the reader needs the update's result, it reads a copy
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache

from hlo_dispatch.analysis.buffer_uses import BufferUses
from hlo_dispatch.analysis.in_place_updates import operand_updated_in_place
from hlo_dispatch.analysis.reachability import ReachabilityMap, ancestors
from hlo_dispatch.analysis.topological_order import TopologicalOrder
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.opcode import FORWARDS
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.passes.merged_buffers import separate_buffers

_TUPLE = 13
_NOT_COMPUTED = frozenset(("constant", "parameter"))
"""Opcodes of instructions whose buffers cannot become another parameter's."""


class RewriteUnsupported(Exception):
    """The computation cannot be rewritten; the message says why. Becomes a refusal, never an error."""


def resolve_hazards(
    editor: Editor, pairs: Iterable[tuple[tuple[int, ...], int | None]], updates: Mapping[int, Collection[int]]
) -> None:
    """Add the copies and control dependencies to a draft that its aliased and its merged buffers need.

    Args:
        pairs: as `BufferAliasing.pairs` returns them.
        updates: id of an in-place update, XLA's or created → numbers of the operands that it may overwrite.

    Raises:
        RewriteUnsupported: the result has a form that leaves no place for a copy.
    """
    separate_buffers(editor, updates)
    pairs = list(pairs)
    if not pairs and not updates:
        return
    resolver = _HazardResolver(editor, updates)
    resolver.resolve_updates()
    resolver.resolve_results(pairs)


class _HazardResolver:
    def __init__(self, editor: Editor, updates: Mapping[int, Collection[int]]) -> None:
        self._editor, self._updates = editor, updates
        self._protos = editor.instructions
        self._uses = BufferUses(editor.instructions, editor.users)
        self._places_in: dict[int, dict[int, list[int]]] = {}
        self._elements_of: dict[int, dict[bytes, set[int]]] = {}

    # --- in-place updates -------------------------------------------------------------------------

    def resolve_updates(self) -> None:
        hazards = self._hazards()
        if not hazards:
            return
        targets = {update for update, _ in hazards}
        targets.update(reader for _, value in hazards for reader in self._uses.readers(value))
        reachability = ReachabilityMap(self._protos, targets)
        preferred_predecessors: dict[int, set[int]] = {}
        for update, value in hazards:
            possible = {r for r in self._uses.readers(value) if r != update and not reachability.reaches(update, r)}
            preferred_predecessors.setdefault(update, set()).update(possible)
        order = TopologicalOrder(self._editor.ordered(preferred_predecessors))
        for update, value in hazards:
            self._resolve_update(update, value, reachability, order)

    def _hazards(self) -> list[tuple[int, int]]:
        """(update, value): the update may overwrite a created value, or a value with a changed reader."""
        updates_of: dict[int, list[int]] = {}
        for identifier, numbers in self._updates.items():
            for value in self._uses.overwritten(self._editor.module, identifier, numbers):
                updates_of.setdefault(value, []).append(identifier)
        found: list[tuple[int, int]] = []
        for value, updates in updates_of.items():
            readers = self._uses.readers(value)
            changed = {reader for reader in readers if self._is_changed(reader)}
            if value in self._editor.created:
                found += [(update, value) for update in updates]
            elif changed:
                possible = self._may_overwrite(updates, readers)
                found += [(update, value) for update in possible if changed != {update}]
        return found

    def _is_changed(self, identifier: int) -> bool:
        """Whether the instruction is created, or its operands were replaced."""
        return identifier in self._editor.created or identifier in self._editor.rewired

    def _may_overwrite(self, updates: list[int], readers: list[int]) -> list[int]:
        """The updates that may overwrite a value of XLA's.

        XLA lets an instruction overwrite a value only where all other readers run before it; of its own instructions
        that can only be the last one in its order.
        """
        unchanged = {i for i in (*updates, *readers) if not self._is_changed(i)}
        last = max(unchanged, key=self._editor.positions.__getitem__, default=None)
        return [update for update in updates if update == last or update not in unchanged]

    def _resolve_update(self, update: int, value: int, reachability: ReachabilityMap, order: TopologicalOrder) -> None:
        """Make all readers of `value` run before `update`, which may overwrite it."""
        after = reachability.target_mask(update)
        # The last readers first: most other readers must run before them anyway.
        for reader in sorted(self._uses.readers(value), key=order.rank, reverse=True):
            if reader == update or reachability.reaches_any(reader, after):
                continue
            if not reachability.reaches(update, reader) and order.add(reader, update):
                self._editor.add_control_dependency(update, reader)
                after |= reachability.target_mask(reader)
            elif self._is_changed(reader):  # XLA ensured that an unchanged reader is safe
                self._read_copies(reader, update, value, order)

    def _read_copies(self, reader: int, update: int, value: int, order: TopologicalOrder) -> None:
        """Redirect `reader` to copies of `value` and of its bitcasts, made before `update`."""
        aliases = self._uses.aliases(value)
        operands = self._protos[reader].operand_ids[:]
        copies: dict[int, int] = {}
        for name in dict.fromkeys(operand for operand in operands if operand in aliases):
            copy = self._copy(name)
            copies[name] = copy.id
            order.insert(copy.id, name)
            order.add(copy.id, update)
            self._editor.add_control_dependency(update, copy.id)
        self._editor.replace_operands(reader, copies)

    # --- results that alias a parameter -----------------------------------------------------------

    def resolve_results(self, pairs: list[tuple[tuple[int, ...], int | None]]) -> None:
        # Instructions that are added below run before the result only, so the map stays valid.
        reachability = cache(lambda: ReachabilityMap(self._protos, self._definers(pairs)))
        for parameter, result in pairs:
            self._resolve_result(parameter, result, reachability)

    def _definers(self, pairs: list[tuple[tuple[int, ...], int | None]]) -> set[int]:
        root = self._editor.root
        if root.opcode != "tuple":
            return {self._uses.definer(root.id)}
        return {self._uses.definer(root.operand_ids[result]) for _, result in pairs if result is not None}

    def _resolve_result(
        self, parameter: tuple[int, ...], result: int | None, reachability: Callable[[], ReachabilityMap]
    ) -> None:
        root = self._editor.root
        if root.shape.element_type == _TUPLE and result is None:
            return
        if result is not None and root.opcode != "tuple":
            if any(self._uses.parameter_elements(parameter)):
                raise RewriteUnsupported(f"%{root.name} is no tuple: the buffers of its elements cannot be followed")
            return
        value = root.operand_ids[result] if result is not None else root.id
        elements = self._uses.parameter_elements(parameter)
        if value in elements:
            return
        definer = self._uses.definer(value)
        elements, readers = self._readers_in_front(elements, definer)
        if definer not in self._editor.created and not any(reader in self._editor.created for reader in readers):
            return
        later_readers = self._readers_after(readers, definer, reachability)
        if later_readers == [definer] and self._updates_in_place(definer, elements):
            return
        if not later_readers and self._protos[definer].opcode not in _NOT_COMPUTED:
            return
        copy = self._copy(value)
        for reader in later_readers:
            # The copy runs after its operand. Another reader may imply this dependency; a redundant one does no harm.
            if reader != definer:
                self._editor.add_control_dependency(copy.id, reader)
        self._replace_result(root, result, copy)

    def _readers_in_front(self, values: set[int], end: int) -> tuple[set[int], list[int]]:
        """The values that are in the buffer of these in front of `end`, and what reads them besides the root."""
        protos, updates = self._protos, self._updates
        users = dict.fromkeys(user for value in values for user in self._editor.users(value))
        users.pop(self._editor.root_id, None)
        # Most parts of a state have readers that put nothing into their buffer.
        if any([protos[user].opcode in FORWARDS or (user in updates and user != end) for user in users]):
            values = self._in_same_buffer(values, end)
            users = dict.fromkeys(reader for value in values for reader in self._uses.readers(value))
            users.pop(self._editor.root_id, None)
        return values, list(users)

    def _in_same_buffer(self, values: set[int], end: int) -> set[int]:
        """These values, and those that loops and other in-place updates in front of `end` put into their buffer."""
        found, pending = set(values), list(values)
        while pending:
            value = pending.pop()
            for user in self._editor.users(value):
                proto, added = self._protos[user], set[int]()
                if proto.opcode == "bitcast":
                    added = {user}
                elif proto.opcode == "tuple":
                    updates = [other for other in self._editor.users(user) if other in self._updates and other != end]
                    added.update(*(self._updated(update, value, user) for update in updates))
                elif user != end and any(proto.operand_ids[n] == value for n in self._updates.get(user, ())):
                    added = self._updated(user, value)
                pending += added - found
                found |= added
        return found

    def _updated(self, update: int, value: int, state: int | None = None) -> set[int]:
        """The results of an update that may be in the buffer of a value, of which its `state` consists."""
        proto = self._protos[update]
        if proto.shape.element_type != _TUPLE:
            return {update}
        if proto.opcode == "while" and state is not None:
            return {element for n in self._places(state)[value] for element in self._uses.elements(update, n)}
        return self._by_shape(update).get(self._protos[value].shape.SerializeToString(), set())

    def _places(self, state: int) -> Mapping[int, list[int]]:
        """Id of an operand of a tuple → its numbers there."""
        if state not in self._places_in:
            found = self._places_in[state] = dict[int, list[int]]()
            for number, operand in enumerate(self._protos[state].operand_ids[:]):
                found.setdefault(operand, []).append(number)
        return self._places_in[state]

    def _by_shape(self, update: int) -> Mapping[bytes, set[int]]:
        """Shape → elements of a result that have it."""
        if update not in self._elements_of:
            found = self._elements_of[update] = dict[bytes, set[int]]()
            for user in self._editor.users(update):
                found.setdefault(self._protos[user].shape.SerializeToString(), set()).add(user)
        return self._elements_of[update]

    def _replace_result(self, root: InstructionProto, result: int | None, copy: InstructionProto) -> None:
        """Make `copy` the result, or this element of it."""
        if result is None:
            self._editor.root_id = copy.id
        else:
            self._editor.set_operand(root.id, result, copy.id)

    def _readers_after(
        self, readers: list[int], definer: int, reachability: Callable[[], ReachabilityMap]
    ) -> list[int]:
        """Readers that may run after the definer; the definer itself only where it is created."""
        if readers == [definer]:
            return readers if definer in self._editor.created else []
        proto = self._protos[definer]
        operands = proto.operand_ids[:]
        before = {definer, *operands, *map(self._uses.definer, operands), *proto.control_predecessor_ids[:]}
        # Most readers are the definer or right before it, which takes no search.
        if not before.issuperset(readers):
            known = reachability()
            # The only definer that is no target is a copy for another element of this result.
            if known.is_target(definer):
                before.update(r for r in readers if known.reaches(r, definer))
            else:
                before |= ancestors(self._protos, definer)
        return [r for r in readers if r not in before or (r == definer and r in self._editor.created)]

    def _updates_in_place(self, definer: int, elements: set[int]) -> bool:
        """Whether the definer reads the buffer only as an in-place update, whose elements it does not read."""
        proto, editor = self._protos[definer], self._editor
        fused = None
        if proto.opcode == "fusion":
            (called,) = proto.called_computation_ids[:]
            created = (computation for computation in editor.computations if computation.id == called)
            fused = next(created, None) or editor.module.computations[called]
        names = {alias for element in elements for alias in self._uses.aliases(element)}
        read = [number for number, operand in enumerate(proto.operand_ids[:]) if operand in names]
        return read == [operand_updated_in_place(proto, fused)]

    def _copy(self, value: int) -> InstructionProto:
        source = self._protos[value]
        return self._editor.after(value, source).make("copy", source.shape, value, stem="hazard_copy")
