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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.schema import InstructionProto
from hlo_dispatch.rewriting.earlier import EarlierThan

# Instructions that write (a part of) their result over an operand, and those that call others that may.
UPDATES = frozenset(("dynamic-update-slice", "scatter"))
_IN_PLACE = UPDATES | frozenset("async-start async-update call conditional sort while".split())
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
    updates: list[int]
    """Ids of the instructions that write in place, XLA's and ours."""
    added: list[tuple[InstructionProto, int]] = field(default_factory=list[tuple[InstructionProto, int]])
    """(new copy, id of the instruction whose place it should stand near)."""


def writes_in_place(module: Module, instruction: InstructionProto) -> bool:
    """Whether the instruction may write over an operand that XLA has not copied for it."""
    if instruction.opcode == "fusion":
        fused = module.computations[instruction.called_computation_ids[0]]
        return any(inner.opcode in UPDATES for inner in fused.instructions[:])
    return instruction.opcode in _IN_PLACE or len(instruction.output_operand_aliasing) > 0


def protect(
    draft: Draft, pairs: Iterable[tuple[tuple[int, ...], int | None]], fresh: Callable[[str], tuple[int, str]]
) -> None:
    """Add to `draft` the copies and control dependencies that its shared buffers need.

    Args:
        pairs: as `sharing.shared_pairs` gives them.
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
        for identifier, proto in self._protos.items():
            for operand in dict.fromkeys(proto.operand_ids[:]):
                self._users.setdefault(operand, []).append(identifier)
        self._parameters: dict[int, set[int]] = {}
        for identifier, proto in self._protos.items():
            if proto.opcode == "parameter":
                self._parameters.setdefault(proto.parameter_number, set()).add(identifier)
        self._before: dict[int, set[int]] = {}
        self._own_root = False

    # --- in-place updates -------------------------------------------------------------------------

    def protect_updates(self) -> None:
        for identifier in self._draft.updates:
            for value in self._buffers(self._protos[identifier]):
                readers = [reader for reader in self._readers(value) if reader != identifier]
                if value in self._draft.ours or any(reader in self._draft.ours for reader in readers):
                    for reader in readers:
                        self._order(reader, identifier, value)

    def _buffers(self, proto: InstructionProto) -> list[int]:
        """Values whose buffers the instruction may write over: its operands, tuples taken apart."""
        # An update writes over its first operand; the rest it only reads.
        count = 1 if proto.opcode == "dynamic-update-slice" else len(proto.operand_ids)
        found: list[int] = []
        pending = list(proto.operand_ids[:count])
        while pending:
            operand = self._protos[pending.pop()]
            if operand.opcode == "tuple":
                pending += operand.operand_ids
            elif operand.shape.element_type != _TUPLE and operand.opcode != "constant":
                found.append(operand.id)
        return found

    def _order(self, reader: int, update: int, value: int) -> None:
        """Make `reader` run before `update`, which may write over the `value` it reads."""
        if reader in self._ancestors(update):
            return
        if update not in self._ancestors(reader):
            self._depend(update, reader)
            return
        if reader not in self._draft.ours:
            return  # as XLA left it: it has its own reasons why this is safe
        copy = self._copy(value)
        self._depend(update, copy.id)
        operands = [copy.id if operand == value else operand for operand in self._protos[reader].operand_ids[:]]
        del self._protos[reader].operand_ids[:]
        self._protos[reader].operand_ids.extend(operands)
        self._before.clear()

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
            return
        if not self._own_root:
            # A training step's result has a part for every weight: it is copied once.
            changed = InstructionProto()
            changed.CopyFrom(root)
            self._protos[root.id] = root = changed
            self._own_root = True
        root.operand_ids[result] = copy.id
        self._before.clear()

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
            parts = {
                user
                for part in parts
                for user in self._users.get(part, ())
                if self._protos[user].opcode == "get-tuple-element" and self._protos[user].tuple_index == index
            }
        return parts

    def _definer(self, value: int) -> int:
        """The instruction that writes `value`'s buffer: behind renamings and parts of tuples."""
        proto = self._protos[value]
        while proto.opcode in ("bitcast", "get-tuple-element"):
            proto = self._protos[proto.operand_ids[0]]
        return proto.id

    # --- the graph --------------------------------------------------------------------------------

    def _readers(self, value: int) -> list[int]:
        """Instructions that read `value`'s buffer, under whatever name; those only passing it on are not."""
        found: list[int] = []
        pending = [value]
        while pending:
            for user in self._users.get(pending.pop(), ()):
                if self._protos[user].opcode == "bitcast":
                    pending.append(user)
                elif self._protos[user].opcode != "tuple":
                    found.append(user)
        return found

    def _ancestors(self, identifier: int) -> set[int]:
        """Everything that must run before the instruction."""
        known = self._before.get(identifier)
        if known is None:
            known = set[int]()
            pending = [identifier]
            while pending:
                proto = self._protos[pending.pop()]
                for earlier in (*proto.operand_ids, *proto.control_predecessor_ids):
                    if earlier not in known:
                        known.add(earlier)
                        pending.append(earlier)
            self._before[identifier] = known
        return known

    def _depend(self, later: int, earlier: int) -> None:
        changed = InstructionProto()
        changed.CopyFrom(self._protos[later])
        changed.control_predecessor_ids.append(earlier)
        self._protos[later] = changed
        self._before.clear()

    def _copy(self, value: int) -> InstructionProto:
        source = self._protos[value]
        identifier, name = self._fresh("kept_apart")
        copy = InstructionProto(opcode="copy", id=identifier, name=name)
        copy.shape.CopyFrom(source.shape)
        copy.operand_ids.append(value)
        if source.HasField("metadata"):
            copy.metadata.CopyFrom(source.metadata)
        self._protos[identifier] = copy
        self._users.setdefault(value, []).append(identifier)
        self._draft.ours.add(identifier)
        self._draft.added.append((copy, value))
        self._before.clear()
        return copy
