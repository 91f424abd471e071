"""Values of which only every so-manieth position is read are computed at those positions alone.

The first convolutions of a stage of ResNet step over a value of the stage before it: of four positions they read one.
What computed it takes larger steps instead, as do the convolutions of single positions before that. XLA leaves all of
it as the user wrote it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI, ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, row_major, shape_of
from hlo_dispatch.passes.backend_config import from_text, to_text
from hlo_dispatch.passes.edit import put_back
from hlo_dispatch.passes.instruction_order import in_order
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.passes.stride_propagation.window_attributes import (
    Steps,
    operands_of_post_ops,
    picking,
    reading,
    steps_read,
    thinned_shape,
    writing,
)
from hlo_dispatch.report import Thinned
from hlo_dispatch.vendor import kernels, registry

_READER, _PICKER = "onednn.convolution", "onednn.pooling"
_WRITERS = _READER, _PICKER
_LARGE_STEP = re.compile(rb"[{ ]strides = array<i64: (?:\d+, )*(?:[2-9]|\d\d+)[,>][^{}]*?dilations = ")


def thin(module: Module) -> tuple[set[int], dict[str, Thinned]]:
    """Compute no position that nothing reads; edits a dispatched module in place.

    Returns:
        ids of the computations that changed; name of a call that computes or reads less than it did → what it does now.
    """
    known = registry.kernels()
    names = {known[name].target: name for name in _WRITERS if name in known}
    thinned: dict[str, Thinned] = {}
    edits: dict[int, Edit] = {}
    for computation, _ in module.control_flow_computations():
        calls = [i for i in computation.instructions[:] if i.custom_call_target in names]
        if not any(names[i.custom_call_target] == _READER and _LARGE_STEP.search(i.backend_config) for i in calls):
            continue
        thinner = _Thinner(module, computation, names)
        if thinner.found():
            edits[computation.id] = thinner.edit()
            thinned.update(thinner.thinned)
    if edits:
        put_back(module, edits)
    return set(edits), thinned


class _Pick(NamedTuple):
    """An operand's positions, picked by a call of the pooling kernel's."""

    attributes: dict[str, Any]
    shape: Shape


@dataclass(frozen=True)
class _Change:
    """What becomes of a call."""

    attributes: dict[str, Any]
    implementation: str
    steps: Steps | None = None
    """Of the positions that it computes; None: all of them."""
    shape: Shape | None = None
    """Its result's, where that is a smaller one."""
    picked: Mapping[int, _Pick] = field(default_factory=dict[int, _Pick])
    """The operands that it needs at those positions alone, and how they are picked where nothing else does it."""


class _Thinner:
    """Decides all of one computation, then edits it."""

    def __init__(self, module: Module, computation: ComputationProto, names: Mapping[str, str]) -> None:
        self._module, self._computation, self._names = module, computation, names
        self._instructions = {instruction.id: instruction for instruction in computation.instructions[:]}
        self._users: dict[int, list[InstructionProto]] = {}
        for instruction in self._instructions.values():
            for operand in dict.fromkeys(instruction.operand_ids[:]):
                self._users.setdefault(operand, []).append(instruction)
        self._fresh = itertools.count(max(self._instructions) + 1)
        self._given: dict[int, dict[str, Any]] = {}
        """Attributes of the calls that were looked at."""
        self._changes: dict[int, _Change] = {}
        self.thinned: dict[str, Thinned] = {}

    def found(self) -> bool:
        """Decide; says whether there is anything to change."""
        for instruction in reversed(self._instructions.values()):
            if instruction.opcode == "custom-call" and instruction.custom_call_target in self._names:
                self._consider(instruction)
        return bool(self._changes)

    def _consider(self, writer: InstructionProto) -> None:
        value = self._value_of(writer)
        readers = self._users.get(value.id, []) if value is not None else []
        if value is None or not readers:
            return
        wanted = {self._steps_read(reader, value.id) for reader in readers}
        steps = wanted.pop()
        if wanted or steps is None:
            return
        changes = self._written(writer, value, steps)
        for reader in readers:
            if changes is not None and reader.operand_ids[0] == value.id:
                change = self._read(reader, steps)
                changes = None if change is None else {**changes, reader.id: change}
        if changes is not None:
            self._changes.update(changes)

    def _value_of(self, call: InstructionProto) -> InstructionProto | None:
        """The one name of a call's result, where nothing else is read of it."""
        users = self._users.get(call.id, [])
        if len(users) != 1 or users[0].opcode != "get-tuple-element" or users[0].tuple_index != 0:
            return None
        return None if self._computation.root_id in (call.id, users[0].id) else users[0]

    def _steps_read(self, reader: InstructionProto, value: int) -> Steps | None:
        """Which positions of a value a call reads; None: all of them, or who knows."""
        places = [place for place, operand in enumerate(reader.operand_ids[:]) if operand == value]
        if len(places) != 1 or reader.custom_call_target not in self._names:
            return None
        change = self._changes.get(reader.id)
        if places[0]:
            return change.steps if change is not None and places[0] in change.picked else None
        is_reader = self._names[reader.custom_call_target] == _READER
        return steps_read(self._attributes(reader)) if is_reader else None

    def _attributes(self, call: InstructionProto) -> dict[str, Any]:
        """Of a call, as far as is decided."""
        if call.id in self._changes:
            return self._changes[call.id].attributes
        if call.id not in self._given:
            self._given[call.id] = from_text(call.backend_config.decode())
        return self._given[call.id]

    def _written(self, writer: InstructionProto, value: InstructionProto, steps: Steps) -> dict[int, _Change] | None:
        """A call that computes these positions alone; None: it cannot."""
        attributes = self._attributes(writer)
        found = writing(attributes, steps) if len(attributes["strides"]) == len(steps) else None
        if found is None:
            return None
        shape = thinned_shape(shape_of(value.shape), attributes["dst_dims"], attributes["dst_strides"], steps)
        picked = {}
        for place in found[1]:
            pick = self._pick(writer, place, steps)
            if pick is None:
                return None
            picked[place] = pick
        change = self._planned(writer, found[0])
        if change is None or shape is None:
            return None
        return {writer.id: replace(change, steps=steps, shape=shape, picked=picked)}

    def _pick(self, writer: InstructionProto, place: int, steps: Steps) -> _Pick | None:
        """How these positions of an operand are picked; None: they cannot be."""
        attributes = self._attributes(writer)
        name = operands_of_post_ops(attributes)[place]
        given = shape_of(self._instructions[writer.operand_ids[place]].shape)
        shape = thinned_shape(given, attributes[name]["dims"], attributes[name]["strides"], steps)
        picks = picking(attributes, name, steps)
        planned = kernels.plan(_PICKER, picks) if picks is not None else None
        if shape is None or picks is None or not isinstance(planned, kernels.Planned):
            return None
        return _Pick(picks | {"scratch": planned.scratch_bytes}, shape)

    def _read(self, reader: InstructionProto, steps: Steps) -> _Change | None:
        """A call that finds nothing else in its source than these positions; None: it cannot."""
        attributes = reading(self._attributes(reader), steps)
        change = self._planned(reader, attributes) if attributes is not None else None
        before = self._changes.get(reader.id)
        if change is None or before is None:
            return change
        return replace(before, attributes=change.attributes, implementation=change.implementation)

    def _planned(self, call: InstructionProto, attributes: dict[str, Any]) -> _Change | None:
        planned = kernels.plan(self._names[call.custom_call_target], attributes | {"scratch": 0})
        if isinstance(planned, Refusal):
            return None
        return _Change(attributes | {"scratch": planned.scratch_bytes}, planned.implementation)

    def edit(self) -> Edit:
        """The computation as it was decided."""
        protos = dict(self._instructions)
        place = {identifier: position for position, identifier in enumerate(protos)}
        picks: dict[tuple[int, Steps], InstructionProto] = {}
        for identifier, change in self._changes.items():
            given = self._instructions[identifier]
            call = protos[identifier] = copy_of(given)
            call.backend_config = to_text(change.attributes).encode()
            call.shape.tuple_shapes[-1].CopyFrom(row_major("u8", (change.attributes["scratch"],)).to_proto())
            about = Thinned(change.attributes, change.implementation, "" if change.shape is None else str(change.shape))
            self.thinned[given.name] = about
            if change.shape is None or change.steps is None:
                continue
            call.shape.tuple_shapes[0].CopyFrom(change.shape.to_proto())
            (value,) = self._users[identifier]
            protos[value.id] = copy_of(value)
            protos[value.id].shape.CopyFrom(change.shape.to_proto())
            for operand, pick in change.picked.items():
                source = given.operand_ids[operand]
                if self._is_thin(source):
                    continue
                key = (source, change.steps)
                if key not in picks:
                    made, picks[key] = self._picking(given, source, pick)
                    protos |= {made.id: made, picks[key].id: picks[key]}
                    place |= dict.fromkeys((made.id, picks[key].id), place[identifier])
                call.operand_ids[operand] = picks[key].id
        return Edit(in_order(protos, place), self._computation.root_id)

    def _is_thin(self, value: int) -> bool:
        """Whether a value is one that is computed at the positions alone where it is read."""
        operands = self._instructions[value].operand_ids[:]
        change = self._changes.get(operands[0]) if operands else None
        return change is not None and change.steps is not None

    def _picking(self, reader: InstructionProto, source: int, pick: _Pick) -> tuple[InstructionProto, InstructionProto]:
        """The call that picks positions of a value for a reader of it, and its result."""
        call = InstructionProto(opcode="custom-call", id=next(self._fresh), name=self._module.fresh_name("picked"))
        call.metadata.CopyFrom(reader.metadata)
        call.operand_ids.append(source)
        call.custom_call_target = registry.kernels()[_PICKER].target
        call.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
        call.backend_config = to_text(pick.attributes).encode()
        call.shape.element_type = reader.shape.element_type
        for part in (pick.shape, row_major("u8", (pick.attributes["scratch"],))):
            call.shape.tuple_shapes.append(part.to_proto())
        value = InstructionProto(opcode="get-tuple-element", id=next(self._fresh), name=f"{call.name}.result")
        value.operand_ids.append(call.id)
        value.shape.CopyFrom(pick.shape.to_proto())
        return call, value
