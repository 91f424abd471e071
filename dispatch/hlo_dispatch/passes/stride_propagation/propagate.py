"""Stride propagation: moves the strides of 1x1 convolutions backwards through the calls that compute their sources.

The first convolutions of a ResNet stage have stride 2 and a 1x1 window: they read one of four positions of the previous
stage's result. The call that computes this result, and the 1x1 convolutions before it, get the stride instead, so that
dead positions are not computed. XLA does not do this.
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
from hlo_dispatch.passes.edit import replace_computations
from hlo_dispatch.passes.instruction_order import in_order
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.passes.stride_propagation.window_attributes import (
    Strides,
    operands_of_post_ops,
    reader_attributes,
    strided_shape,
    strides_read,
    subsampling_attributes,
    writer_attributes,
)
from hlo_dispatch.report import StridedCall
from hlo_dispatch.vendor import kernels, registry

_READER, _SUBSAMPLER = "onednn.convolution", "onednn.pooling"
_WRITERS = _READER, _SUBSAMPLER
_STRIDED = re.compile(rb"[{ ]strides = array<i64: (?:\d+, )*(?:[2-9]|\d\d+)[,>][^{}]*?dilations = ")


def propagate_strides(module: Module) -> tuple[set[int], dict[str, StridedCall]]:
    """Propagate strides so that no dead position is computed; edits a dispatched module in place.

    Returns:
        ids of the computations that changed; name of a changed call → its new attributes.
    """
    known = registry.kernels()
    names = {known[name].target: name for name in _WRITERS if name in known}
    strided_calls: dict[str, StridedCall] = {}
    edits: dict[int, Edit] = {}
    for computation, _ in module.control_flow_computations():
        calls = [i for i in computation.instructions[:] if i.custom_call_target in names]
        if not any(names[i.custom_call_target] == _READER and _STRIDED.search(i.backend_config) for i in calls):
            continue
        propagator = _StridePropagator(module, computation, names)
        if propagator.found():
            edits[computation.id] = propagator.edit()
            strided_calls.update(propagator.strided_calls)
    if edits:
        replace_computations(module, edits)
    return set(edits), strided_calls


class _Subsampling(NamedTuple):
    """A call of the pooling kernel that subsamples an operand at the strided positions."""

    attributes: dict[str, Any]
    shape: Shape


@dataclass(frozen=True)
class _Change:
    """The new attributes of a call."""

    attributes: dict[str, Any]
    implementation: str
    strides: Strides | None = None
    """Strides of the positions that it computes; None: all positions."""
    shape: Shape | None = None
    """The shape of its smaller result; None: unchanged."""
    subsampled: Mapping[int, _Subsampling] = field(default_factory=dict[int, _Subsampling])
    """Number of an operand that it reads at those positions only → the subsampling, where the operand itself is not
    strided."""


class _StridePropagator:
    """Propagates the strides of one computation: decides first, then edits."""

    def __init__(self, module: Module, computation: ComputationProto, names: Mapping[str, str]) -> None:
        self._module, self._computation, self._names = module, computation, names
        self._instructions = {instruction.id: instruction for instruction in computation.instructions[:]}
        self._users: dict[int, list[InstructionProto]] = {}
        for instruction in self._instructions.values():
            for operand in dict.fromkeys(instruction.operand_ids[:]):
                self._users.setdefault(operand, []).append(instruction)
        self._fresh = itertools.count(max(self._instructions) + 1)
        self._parsed_attributes: dict[int, dict[str, Any]] = {}
        """Parsed attributes of the calls."""
        self._changes: dict[int, _Change] = {}
        self.strided_calls: dict[str, StridedCall] = {}

    def found(self) -> bool:
        """Decide; returns whether any call changes."""
        for instruction in reversed(self._instructions.values()):
            if instruction.opcode == "custom-call" and instruction.custom_call_target in self._names:
                self._consider(instruction)
        return bool(self._changes)

    def _consider(self, writer: InstructionProto) -> None:
        value = self._value_of(writer)
        readers = self._users.get(value.id, []) if value is not None else []
        if value is None or not readers:
            return
        read_strides = {self._strides_read(reader, value.id) for reader in readers}
        strides = read_strides.pop()
        if read_strides or strides is None:
            return
        changes = self._changed_writers(writer, value, strides)
        for reader in readers:
            if changes is not None and reader.operand_ids[0] == value.id:
                change = self._changed_reader(reader, strides)
                changes = None if change is None else {**changes, reader.id: change}
        if changes is not None:
            self._changes.update(changes)

    def _value_of(self, call: InstructionProto) -> InstructionProto | None:
        """The get-tuple-element of a call's result, where it is the call's only user."""
        users = self._users.get(call.id, [])
        if len(users) != 1 or users[0].opcode != "get-tuple-element" or users[0].tuple_index != 0:
            return None
        return None if self._computation.root_id in (call.id, users[0].id) else users[0]

    def _strides_read(self, reader: InstructionProto, value: int) -> Strides | None:
        """Strides of the positions of a value that a call reads; None: all positions, or unknown."""
        places = [place for place, operand in enumerate(reader.operand_ids[:]) if operand == value]
        if len(places) != 1 or reader.custom_call_target not in self._names:
            return None
        change = self._changes.get(reader.id)
        if places[0]:
            return change.strides if change is not None and places[0] in change.subsampled else None
        is_reader = self._names[reader.custom_call_target] == _READER
        return strides_read(self._attributes(reader)) if is_reader else None

    def _attributes(self, call: InstructionProto) -> dict[str, Any]:
        """The attributes of a call, changes included."""
        if call.id in self._changes:
            return self._changes[call.id].attributes
        if call.id not in self._parsed_attributes:
            self._parsed_attributes[call.id] = from_text(call.backend_config.decode())
        return self._parsed_attributes[call.id]

    def _changed_writers(
        self, writer: InstructionProto, value: InstructionProto, strides: Strides
    ) -> dict[int, _Change] | None:
        """The changes that make a call compute the strided positions only; None: it cannot."""
        attributes = self._attributes(writer)
        found = writer_attributes(attributes, strides) if len(attributes["strides"]) == len(strides) else None
        if found is None:
            return None
        shape = strided_shape(shape_of(value.shape), attributes["dst_dims"], attributes["dst_strides"], strides)
        subsampled = {}
        for place in found[1]:
            subsampling = self._subsampling(writer, place, strides)
            if subsampling is None:
                return None
            subsampled[place] = subsampling
        change = self._change_if_supported(writer, found[0])
        if change is None or shape is None:
            return None
        return {writer.id: replace(change, strides=strides, shape=shape, subsampled=subsampled)}

    def _subsampling(self, writer: InstructionProto, place: int, strides: Strides) -> _Subsampling | None:
        """The subsampling of an operand; None: there is none."""
        attributes = self._attributes(writer)
        name = operands_of_post_ops(attributes)[place]
        original = shape_of(self._instructions[writer.operand_ids[place]].shape)
        shape = strided_shape(original, attributes[name]["dims"], attributes[name]["strides"], strides)
        picks = subsampling_attributes(attributes, name, strides)
        planned = kernels.plan(_SUBSAMPLER, picks) if picks is not None else None
        if shape is None or picks is None or not isinstance(planned, kernels.Planned):
            return None
        return _Subsampling(picks | {"scratch": planned.scratch_bytes}, shape)

    def _changed_reader(self, reader: InstructionProto, strides: Strides) -> _Change | None:
        """The change of a call whose source has the strided positions only; None: it cannot."""
        attributes = reader_attributes(self._attributes(reader), strides)
        change = self._change_if_supported(reader, attributes) if attributes is not None else None
        before = self._changes.get(reader.id)
        if change is None or before is None:
            return change
        return replace(before, attributes=change.attributes, implementation=change.implementation)

    def _change_if_supported(self, call: InstructionProto, attributes: dict[str, Any]) -> _Change | None:
        planned = kernels.plan(self._names[call.custom_call_target], attributes | {"scratch": 0})
        if isinstance(planned, Refusal):
            return None
        return _Change(attributes | {"scratch": planned.scratch_bytes}, planned.implementation)

    def edit(self) -> Edit:
        """The computation with the decided changes."""
        protos = dict(self._instructions)
        place = {identifier: position for position, identifier in enumerate(protos)}
        picks: dict[tuple[int, Strides], InstructionProto] = {}
        for identifier, change in self._changes.items():
            original = self._instructions[identifier]
            call = protos[identifier] = copy_of(original)
            call.backend_config = to_text(change.attributes).encode()
            call.shape.tuple_shapes[-1].CopyFrom(row_major("u8", (change.attributes["scratch"],)).to_proto())
            strided_call = StridedCall(
                change.attributes, change.implementation, "" if change.shape is None else str(change.shape)
            )
            self.strided_calls[original.name] = strided_call
            if change.shape is None or change.strides is None:
                continue
            call.shape.tuple_shapes[0].CopyFrom(change.shape.to_proto())
            (value,) = self._users[identifier]
            protos[value.id] = copy_of(value)
            protos[value.id].shape.CopyFrom(change.shape.to_proto())
            for operand, subsampling in change.subsampled.items():
                source = original.operand_ids[operand]
                if self._is_strided(source):
                    continue
                key = (source, change.strides)
                if key not in picks:
                    made, picks[key] = self._emit_subsampling(original, source, subsampling)
                    protos |= {made.id: made, picks[key].id: picks[key]}
                    place |= dict.fromkeys((made.id, picks[key].id), place[identifier])
                call.operand_ids[operand] = picks[key].id
        return Edit(in_order(protos, place), self._computation.root_id)

    def _is_strided(self, value: int) -> bool:
        """Whether a value is computed at the strided positions only."""
        operands = self._instructions[value].operand_ids[:]
        change = self._changes.get(operands[0]) if operands else None
        return change is not None and change.strides is not None

    def _emit_subsampling(
        self, reader: InstructionProto, source: int, subsampling: _Subsampling
    ) -> tuple[InstructionProto, InstructionProto]:
        """The call that subsamples a value for one reader, and its result."""
        call = InstructionProto(opcode="custom-call", id=next(self._fresh), name=self._module.fresh_name("subsampled"))
        call.metadata.CopyFrom(reader.metadata)
        call.operand_ids.append(source)
        call.custom_call_target = registry.kernels()[_SUBSAMPLER].target
        call.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
        call.backend_config = to_text(subsampling.attributes).encode()
        call.shape.element_type = reader.shape.element_type
        for part in (subsampling.shape, row_major("u8", (subsampling.attributes["scratch"],))):
            call.shape.tuple_shapes.append(part.to_proto())
        value = InstructionProto(opcode="get-tuple-element", id=next(self._fresh), name=f"{call.name}.result")
        value.operand_ids.append(call.id)
        value.shape.CopyFrom(subsampling.shape.to_proto())
        return call, value
