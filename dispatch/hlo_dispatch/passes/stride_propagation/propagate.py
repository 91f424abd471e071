"""Stride propagation: moves the strides of 1x1 convolutions backwards through the calls that compute their sources.

The first convolutions of a ResNet stage have stride 2 and a 1x1 window: they read one of four positions of the previous
stage's result. The call that computes this result, and the 1x1 convolutions before it, get the stride instead, so that
dead positions are not computed. XLA does not do this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.kernel_call import KernelCall, operand_roles
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.stride_propagation.window_attributes import (
    Strides,
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


def propagate_strides(module: Module, context: PassContext) -> set[int]:
    """Propagate strides so that no dead position is computed."""
    known = registry.kernels()
    names = {known[name].target: name for name in _WRITERS if name in known}
    editors: list[Editor] = []
    for computation, _ in module.control_flow_computations():
        calls = [i for i in computation.instructions[:] if i.custom_call_target in names]
        readers = (module.kernel_call(call) for call in calls if names[call.custom_call_target] == _READER)
        if all(max(reader.attributes["strides"], default=1) == 1 for reader in readers):
            continue
        propagator = _StridePropagator(module, computation, names)
        if propagator.found():
            editors.append(propagator.draft())
            context.strided_calls.update(propagator.strided_calls)
    return commit(module, editors)


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
        self._names = names
        self._editor = Editor(module, computation)
        self._instructions = self._editor.instructions
        self._parsed: dict[int, KernelCall] = {}
        """Calls that were read, before their changes."""
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
        readers = self._users(value) if value is not None else []
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
        users = self._users(call)
        if len(users) != 1 or users[0].opcode != "get-tuple-element" or users[0].tuple_index != 0:
            return None
        return None if self._editor.root_id in (call.id, users[0].id) else users[0]

    def _strides_read(self, reader: InstructionProto, value: int) -> Strides | None:
        """Strides of the positions of a value that a call reads; None: all positions, or unknown."""
        places = [place for place, operand in enumerate(reader.operand_ids[:]) if operand == value]
        if len(places) != 1 or reader.custom_call_target not in self._names or places[0] in self._call(reader).slices:
            return None
        change = self._changes.get(reader.id)
        if places[0]:
            return change.strides if change is not None and places[0] in change.subsampled else None
        is_reader = self._names[reader.custom_call_target] == _READER
        return strides_read(self._attributes(reader)) if is_reader else None

    def _attributes(self, call: InstructionProto) -> Mapping[str, Any]:
        """The attributes of a call, changes included."""
        if call.id in self._changes:
            return self._changes[call.id].attributes
        return self._call(call).attributes.mapping

    def _call(self, instruction: InstructionProto) -> KernelCall:
        """The call of an instruction before any change."""
        if instruction.id not in self._parsed:
            self._parsed[instruction.id] = self._editor.module.kernel_call(instruction)
        return self._parsed[instruction.id]

    def _users(self, instruction: InstructionProto) -> list[InstructionProto]:
        return [self._instructions[user] for user in self._editor.users(instruction.id)]

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
        if place in self._call(writer).slices:
            return None
        name = operand_roles(attributes)[place]
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

    def draft(self) -> Editor:
        """The computation with the decided changes."""
        editor = self._editor
        picks: dict[tuple[int, Strides], int] = {}
        for identifier, change in self._changes.items():
            original = self._instructions[identifier]
            shape = "" if change.shape is None else str(change.shape)
            self.strided_calls[original.name] = StridedCall(change.attributes, change.implementation, shape)
            call = self._call(original).with_attributes(change.attributes)
            if change.shape is not None and change.strides is not None:
                call = replace(call, results=(change.shape,))
                (value,) = editor.users(identifier)
                editor.mutable(value).shape.CopyFrom(change.shape.to_proto())
                operands = list(call.operands)
                for number, subsampling in change.subsampled.items():
                    source = operands[number]
                    if self._is_strided(source):
                        continue
                    key = (source, change.strides)
                    if key not in picks:
                        picks[key] = self._emit_subsampling(original, source, subsampling)
                    operands[number] = picks[key]
                call = replace(call, operands=tuple(operands))
            editor.write(identifier, call)
        return editor

    def _is_strided(self, value: int) -> bool:
        """Whether a value is computed at the strided positions only."""
        operands = self._instructions[value].operand_ids[:]
        change = self._changes.get(operands[0]) if operands else None
        return change is not None and change.strides is not None

    def _emit_subsampling(self, reader: InstructionProto, source: int, subsampling: _Subsampling) -> int:
        """Emit the call that subsamples a value for one reader; returns the id of its result."""
        builder = self._editor.after(reader.id, reader)
        target, attributes = registry.kernels()[_SUBSAMPLER].target, Attributes(subsampling.attributes)
        call = KernelCall(target, (source,), attributes, (subsampling.shape,), subsampling.attributes["scratch"])
        made = builder.kernel_call(call, "subsampled")
        return builder.get_tuple_element(made.id, 0, subsampling.shape, f"{made.name}.result").id
