"""Keeping shared buffers safe: what we read must be read before somebody writes over it.

When XLA calls us it has already decided that some values share one buffer: a while body's parameter and its
result, a donated input and its output, the operand and result of an in-place update. It inserted the copies
that *its* instructions need; ours read more at once and read from further up. So, for every buffer that one
of our instructions reads or writes:

  parameter → … → result     every reader of the parameter must come before the instruction that defines
                             the result; where ours does not, the result is copied into place afterwards
  value → in-place update    every reader of the value must come before the update: a control dependency
                             says so, or, where the reader needs the update's result, it reads a copy
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial

from hlo_dispatch.analysis.reachability import EarlierThan
from hlo_dispatch.analysis.topological_order import TopologicalOrder
from hlo_dispatch.ir.module import copy_of
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.passes.instruction_order import in_order

_TUPLE = 13


class CannotRebuild(Exception):
    """The computation has to stay as it is; the message says why. Becomes a refusal, never an error."""


@dataclass
class Draft:
    """A rebuilt computation before it is put in order."""

    instructions: dict[int, InstructionProto]
    """By id."""
    root_id: int
    ours: set[int]
    """Ids of the instructions that the rewrite made."""
    updates: Mapping[int, Collection[int]]
    """Id of an instruction that writes in place, XLA's or ours → the numbers of the operands that it may write over."""
    place: Mapping[int, int]
    """Id → position in the original order that the instruction should stand near."""
    renamed: AbstractSet[int] = frozenset()
    """Ids of XLA's instructions whose operands are other instructions than they were."""
    added: list[tuple[InstructionProto, int]] = field(default_factory=list[tuple[InstructionProto, int]])
    """(new copy, id of the instruction whose place it should stand near)."""


def protect(
    draft: Draft, pairs: Iterable[tuple[tuple[int, ...], int | None]], fresh: Callable[[str], tuple[int, str]]
) -> None:
    """Add to `draft` the copies and control dependencies that its shared buffers need.

    Args:
        pairs: as `sharing.Sharing` gives them.
        fresh: stem → (a new instruction's id, name).

    Raises:
        CannotRebuild: the result is put together in a way that leaves no place for a copy.
    """
    pairs = list(pairs)
    if not pairs and not draft.updates:
        return
    guard = _Guard(draft, fresh)
    guard.protect_updates()
    guard.protect_results(pairs)


class _Guard:
    def __init__(self, draft: Draft, fresh: Callable[[str], tuple[int, str]]) -> None:
        self._draft, self._fresh = draft, fresh
        self._protos = draft.instructions
        self._users: dict[int, list[int]] = {}
        self._parameters: dict[int, set[int]] = {}
        self._elements: dict[tuple[int, int], set[int]] = {}
        """(a tuple's id, index) → ids of the instructions that are this element of it."""
        for identifier, proto in self._protos.items():
            for operand in dict.fromkeys(proto.operand_ids[:]):
                self._users.setdefault(operand, []).append(identifier)
            if proto.opcode == "parameter":
                self._parameters.setdefault(proto.parameter_number, set()).add(identifier)
            elif proto.opcode == "get-tuple-element":
                self._elements.setdefault((proto.operand_ids[0], proto.tuple_index), set()).add(identifier)
        self._owned: set[int] = set()
        """Ids of the instructions that may be changed: no other computation holds them."""

    # --- in-place updates -------------------------------------------------------------------------

    def protect_updates(self) -> None:
        endangered = self._endangered()
        if not endangered:
            return
        watched = {update for update, _ in endangered}
        watched.update(reader for _, value in endangered for reader in self._readers(value))
        early = EarlierThan(self._protos, watched)
        wishes: dict[int, set[int]] = {}
        for update, value in endangered:
            possible = {r for r in self._readers(value) if r != update and not early.than(update, r)}
            wishes.setdefault(update, set()).update(possible)
        order = TopologicalOrder(in_order(self._protos, self._draft.place, wishes))
        for update, value in endangered:
            self._protect_update(update, value, early, order)

    def _endangered(self) -> list[tuple[int, int]]:
        """(update, value): it may write over the value while a changed reader still reads that, or over one of ours."""
        updates_of: dict[int, list[int]] = {}
        for identifier, numbers in self._draft.updates.items():
            for value in self._buffers(self._protos[identifier], numbers):
                updates_of.setdefault(value, []).append(identifier)
        found: list[tuple[int, int]] = []
        for value, updates in updates_of.items():
            readers = self._readers(value)
            changed = {reader for reader in readers if self._is_changed(reader)}
            if value in self._draft.ours:
                found += [(update, value) for update in updates]
            elif changed:
                possible = self._possible(updates, readers)
                found += [(update, value) for update in possible if changed != {update}]
        return found

    def _is_changed(self, identifier: int) -> bool:
        """Whether the instruction is ours, or reads something else than XLA had it read."""
        return identifier in self._draft.ours or identifier in self._draft.renamed

    def _possible(self, updates: list[int], readers: list[int]) -> list[int]:
        """Those of the updates of a value of XLA's that may write over it.

        XLA lets an instruction do so only where all others that read the value run before it, so that of its own one
        can: the last in its order.
        """
        unchanged = {i for i in (*updates, *readers) if not self._is_changed(i)}
        last = max(unchanged, key=self._draft.place.__getitem__, default=None)
        return [update for update in updates if update == last or update not in unchanged]

    def _buffers(self, proto: InstructionProto, numbers: Iterable[int]) -> set[int]:
        """Values whose buffers the instruction may write over: these operands, tuples taken apart, without bitcasts."""
        found: set[int] = set()
        pending = [proto.operand_ids[number] for number in numbers]
        while pending:
            operand = self._protos[pending.pop()]
            if operand.opcode in ("bitcast", "tuple"):
                pending += operand.operand_ids
            elif operand.shape.element_type != _TUPLE and operand.opcode != "constant":
                found.add(operand.id)
        return found

    def _protect_update(self, update: int, value: int, early: EarlierThan, order: TopologicalOrder) -> None:
        """Make all readers of `value` run before `update`, which may write over it."""
        after = early.mask(update)
        # The last ones first: most of the others must run before those anyway.
        for reader in sorted(self._readers(value), key=order.rank, reverse=True):
            if reader == update or early.than_any(reader, after):
                continue
            if not early.than(update, reader) and order.add(reader, update):
                self._depend(update, reader)
                after |= early.mask(reader)
            elif self._is_changed(reader):  # else it is as XLA left it, which has its own reasons why that is safe
                self._read_copies(reader, update, value, order)

    def _read_copies(self, reader: int, update: int, value: int, order: TopologicalOrder) -> None:
        """Have `reader` read a copy of `value`, made before `update`, under whatever name it reads it."""
        names = self._names(value)
        operands = self._protos[reader].operand_ids[:]
        copies: dict[int, int] = {}
        for name in dict.fromkeys(operand for operand in operands if operand in names):
            copy = self._copy(name)
            copies[name] = copy.id
            order.insert(copy.id, name)
            order.add(copy.id, update)
            self._depend(update, copy.id)
            self._users[name].remove(reader)
            self._users[copy.id] = [reader]
        changed = self._own(reader)
        del changed.operand_ids[:]
        changed.operand_ids.extend(copies.get(operand, operand) for operand in operands)

    # --- results that share a parameter's buffer --------------------------------------------------

    def protect_results(self, pairs: list[tuple[tuple[int, ...], int | None]]) -> None:
        # What is added from here on runs before nothing but the result, so this holds until the end.
        early = EarlierThan(self._protos, self._definers(pairs))
        for parameter, result in pairs:
            self._protect_result(parameter, result, early)

    def _definers(self, pairs: list[tuple[tuple[int, ...], int | None]]) -> set[int]:
        root = self._protos[self._draft.root_id]
        if root.opcode != "tuple":
            return {self._definer(root.id)}
        return {self._definer(root.operand_ids[result]) for _, result in pairs if result is not None}

    def _protect_result(self, parameter: tuple[int, ...], result: int | None, early: EarlierThan) -> None:
        root = self._protos[self._draft.root_id]
        if root.shape.element_type == _TUPLE and result is None:
            return
        if result is not None and root.opcode != "tuple":
            if any(self._part(parameter)):
                raise CannotRebuild(f"%{root.name} is no tuple: the buffers of its parts cannot be followed")
            return
        value = root.operand_ids[result] if result is not None else root.id
        parts = self._part(parameter)
        if value in parts:
            return
        definer = self._definer(value)
        readers = [reader for part in parts for reader in self._readers(part) if reader != root.id]
        if definer not in self._draft.ours and not any(reader in self._draft.ours for reader in readers):
            return
        late = self._late(readers, definer, early)
        if not late:
            return
        copy = self._copy(value)
        for reader in late:
            # The copy runs after what it copies. Another reader may imply this one; saying it twice does no harm.
            if reader != definer:
                self._depend(copy.id, reader)
        self._give_back(root, result, copy)

    def _give_back(self, root: InstructionProto, result: int | None, copy: InstructionProto) -> None:
        """Make `copy` the result, or this part of it."""
        if result is None:
            self._draft.root_id = copy.id
        else:
            self._own(root.id).operand_ids[result] = copy.id

    def _late(self, readers: list[int], definer: int, early: EarlierThan) -> list[int]:
        """Readers that need not run before the definer, itself only where it is ours."""
        # Unknown is only a copy that was put in for another part of this result.
        known = early.knows(definer)
        is_early = partial(early.than, target=definer) if known else self._ancestors(definer).__contains__
        return [r for r in readers if not is_early(r) and (r != definer or r in self._draft.ours)]

    def _part(self, parameter: tuple[int, ...]) -> set[int]:
        """Ids of the instructions that are this part of a parameter."""
        number, *path = parameter
        parts = self._parameters.get(number, set())
        for index in path:
            parts = {element for part in parts for element in self._elements.get((part, index), ())}
        return parts

    def _definer(self, value: int) -> int:
        """The instruction that writes `value`'s buffer: behind renamings and parts of tuples."""
        proto = self._protos[value]
        while proto.opcode in ("bitcast", "get-tuple-element"):
            proto = self._protos[proto.operand_ids[0]]
        return proto.id

    # --- the graph --------------------------------------------------------------------------------

    def _names(self, value: int) -> list[int]:
        """What lies in `value`'s buffer whole: itself, and its bitcasts."""
        found = [value]
        for name in found:
            found += [user for user in self._users.get(name, ()) if self._protos[user].opcode == "bitcast"]
        return found

    def _readers(self, value: int) -> list[int]:
        """Instructions that read `value`'s buffer, under whatever name; those only passing it on are not."""
        users = dict.fromkeys(user for name in self._names(value) for user in self._users.get(name, ()))
        return [user for user in users if self._protos[user].opcode not in ("bitcast", "tuple")]

    def _ancestors(self, identifier: int) -> set[int]:
        """Everything that must run before the instruction."""
        known = set[int]()
        pending = [identifier]
        while pending:
            proto = self._protos[pending.pop()]
            for earlier in (*proto.operand_ids[:], *proto.control_predecessor_ids[:]):
                if earlier not in known:
                    known.add(earlier)
                    pending.append(earlier)
        return known

    def _own(self, identifier: int) -> InstructionProto:
        """The instruction, to be changed: copied once, since it may wait for thousands of others."""
        if identifier not in self._owned:
            self._owned.add(identifier)
            self._protos[identifier] = copy_of(self._protos[identifier])
        return self._protos[identifier]

    def _depend(self, later: int, earlier: int) -> None:
        self._own(later).control_predecessor_ids.append(earlier)

    def _copy(self, value: int) -> InstructionProto:
        source = self._protos[value]
        identifier, name = self._fresh("kept_apart")
        copy = InstructionProto(opcode="copy", id=identifier, name=name)
        copy.shape.CopyFrom(source.shape)
        copy.operand_ids.append(value)
        if source.HasField("metadata"):
            copy.metadata.CopyFrom(source.metadata)
        self._protos[identifier] = copy
        self._owned.add(identifier)
        self._users.setdefault(value, []).append(identifier)
        self._draft.ours.add(identifier)
        self._draft.added.append((copy, value))
        return copy
