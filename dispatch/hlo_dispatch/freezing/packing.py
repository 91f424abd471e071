"""Weights that a kernel wants in a layout of its own: packed by a call ahead of the kernel's, which is early then."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from hlo_dispatch.hlo.early import early_values, given_everywhere
from hlo_dispatch.hlo.flat import FlatGraph
from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.schema import CUSTOM_CALL_API_TYPED_FFI, ELEMENT_TYPE_NUMBERS, ComputationProto, InstructionProto
from hlo_dispatch.hlo.shape import Shape, row_major
from hlo_dispatch.rewriting.backend_config import from_text, to_text
from hlo_dispatch.vendor.packing import PackedForm, packed_form

_WEIGHTS = 1
"""Which operand of a call they are."""
_OF_WEIGHTS = ("weights_", "packed_")
"""Attributes of the weights, by name."""


def pack(serialized: bytes, frozen: AbstractSet[int], kernels: Mapping[str, str]) -> tuple[bytes, set[str]]:
    """Put a packing call ahead of every kernel call whose weights depend on frozen parameters alone.

    Args:
        serialized: a dispatched module.
        frozen: numbers of the parameters that are frozen.
        kernels: target of a custom-call → the kernel's name.

    Returns:
        the module, and the names of the instructions whose values are packed weights.
    """
    module = Module.from_bytes(serialized)
    graphs: dict[int, FlatGraph] = {}

    def graph_of(computation: ComputationProto) -> FlatGraph:
        return graphs.setdefault(computation.id, FlatGraph(module, computation))

    packed: set[str] = set()
    for identifier, given in given_everywhere(module, frozen, graph_of).items():
        if forms := _forms(graphs[identifier], given, kernels):
            packed |= _put_in(module, module.computations[identifier], forms)
    for graph in graphs.values():
        graph.take_apart()
    return (module.to_bytes(), packed) if packed else (serialized, packed)


def _forms(graph: FlatGraph, given: AbstractSet[int], kernels: Mapping[str, str]) -> Mapping[int, PackedForm]:
    """Id of a kernel call whose weights are early → how it would have them."""
    early = {node for node in early_values(graph, given) if node.shape.is_array}
    forms: dict[int, PackedForm] = {}
    for instruction in graph.instruction_of.values():
        kernel = kernels.get(instruction.custom_call_target) if instruction.opcode == "custom-call" else None
        if kernel is None or len(instruction.operand_ids) <= _WEIGHTS:
            continue
        weights = graph.value_of[instruction.operand_ids[_WEIGHTS]]
        if weights in early and (form := _form(kernel, from_text(instruction.backend_config.decode()))) is not None:
            forms[instruction.id] = form
    return forms


def _form(kernel: str, attributes: dict[str, Any]) -> PackedForm | None:
    # Whoever asks for plain weights has measured that they are faster.
    return None if attributes.get("weights_format") == "plain" else packed_form(kernel, attributes)


def _put_in(module: Module, computation: ComputationProto, forms: Mapping[int, PackedForm]) -> set[str]:
    """Write the packing calls, and have the kernel calls read what they make."""
    instructions: list[InstructionProto] = []
    fresh = max(instruction.id for instruction in computation.instructions)
    made: dict[tuple[int, str], InstructionProto] = {}
    """Weights, and what of the reader's attributes their packed form depends on → that form: two calls may share it."""
    for given in computation.instructions:
        instruction = InstructionProto()
        instruction.CopyFrom(given)
        form = forms.get(given.id)
        if form is not None:
            key = (
                given.operand_ids[form.operand],
                to_text({n: form.call[n] for n in sorted(form.call) if n.startswith(_OF_WEIGHTS)}),
            )
            packed = made.get(key)
            if packed is None:
                call = _call(module, fresh + 1, given, form)
                packed = made[key] = _blob(module, fresh + 2, call, form)
                fresh += 2
                instructions += [call, packed]
            instruction.operand_ids[form.operand] = packed.id
            instruction.backend_config = to_text(form.call).encode()
            scratch = instruction.shape.tuple_shapes[-1]
            scratch.CopyFrom(_bytes(form.call["scratch"]).to_proto())
        instructions.append(instruction)
    del computation.instructions[:]
    computation.instructions.extend(instructions)
    return {packed.name for packed in made.values()}


def _call(module: Module, identifier: int, reader: InstructionProto, form: PackedForm) -> InstructionProto:
    proto = InstructionProto(opcode="custom-call", id=identifier, name=module.fresh_name(f"{reader.name}.pack"))
    proto.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
    for size in (form.bytes, form.pack_scratch):
        proto.shape.tuple_shapes.append(_bytes(size).to_proto())
    proto.operand_ids.append(reader.operand_ids[form.operand])
    proto.custom_call_target = form.pack_target
    proto.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
    proto.backend_config = to_text(form.pack).encode()
    return proto


def _blob(module: Module, identifier: int, call: InstructionProto, form: PackedForm) -> InstructionProto:
    proto = InstructionProto(opcode="get-tuple-element", id=identifier, name=module.fresh_name(f"{call.name}ed"))
    proto.shape.CopyFrom(_bytes(form.bytes).to_proto())
    proto.operand_ids.append(call.id)
    return proto


def _bytes(count: int) -> Shape:
    return row_major("u8", (count,))
