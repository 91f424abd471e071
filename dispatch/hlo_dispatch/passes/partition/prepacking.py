"""Weights that a kernel wants in a layout of its own: packed by a call ahead of the kernel's, which is early then."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.analysis.binding_time import early_values, given_everywhere
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.analysis.stacked_slices import Picked, picked_values
from hlo_dispatch.ir.module import Module, copy_of, new_instruction
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI, ELEMENT_TYPE_NUMBERS, InstructionProto
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.passes.backend_config import from_text, to_text
from hlo_dispatch.passes.edit import put_back
from hlo_dispatch.passes.instruction_order import needed
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.passes.partition.stacked_weights import sliced, stacked, taken_out
from hlo_dispatch.vendor.prepacking import PackedForm, packed_form

_WEIGHTS = 1
"""Which operand of a call they are."""
_OF_WEIGHTS = ("weights_", "packed_")
"""Attributes of the weights, by name."""


def pack(
    serialized: bytes, frozen: AbstractSet[int], kernels: Mapping[str, str], threads: int
) -> tuple[bytes, set[str]]:
    """Put a packing call ahead of every kernel call whose weights depend on frozen parameters alone.

    Args:
        serialized: a dispatched module.
        frozen: numbers of the parameters that are frozen.
        kernels: target of a custom-call → the kernel's name.
        threads: how many XLA computes with.

    Returns:
        the module, and the names of the instructions whose values are packed weights.
    """
    module = Module.from_bytes(serialized)
    packed: set[str] = set()
    edits: dict[int, Edit] = {}
    with flat_graphs(module) as graph_of:
        for identifier, given in given_everywhere(module, frozen, graph_of).items():
            graph = graph_of(identifier)
            if wanted := _wanted(graph, given, kernels):
                packing = _Packing(module, graph, threads)
                edits[identifier] = packing.edit(wanted)
                packed |= packing.names
    if not edits:
        return serialized, packed
    put_back(module, edits)
    return module.to_bytes(), packed


@dataclass(frozen=True)
class _Wanted:
    """How a kernel call would have its weights."""

    form: PackedForm
    weights: Node
    picked: Picked | None
    """Where they are one of several."""


def _wanted(graph: FlatGraph, given: AbstractSet[int], kernels: Mapping[str, str]) -> Mapping[int, _Wanted]:
    """Id of a kernel call whose weights are early, or one of several early ones → how it would have them."""
    early = early_values(graph, given)
    picked = picked_values(graph, early)
    found: dict[int, _Wanted] = {}
    for instruction in graph.instruction_of.values():
        kernel = kernels.get(instruction.custom_call_target) if instruction.opcode == "custom-call" else None
        if kernel is None or len(instruction.operand_ids) <= _WEIGHTS:
            continue
        weights = graph.value_of[instruction.operand_ids[_WEIGHTS]]
        if weights.shape.is_array and (weights in early or weights in picked):
            form = _form(kernel, from_text(instruction.backend_config.decode()))
            if form is not None:
                found[instruction.id] = _Wanted(form, weights, picked.get(weights))
    return found


def _form(kernel: str, attributes: dict[str, Any]) -> PackedForm | None:
    # Whoever asks for plain weights has measured that they are faster.
    return None if attributes.get("weights_format") == "plain" else packed_form(kernel, attributes)


class _Packing:
    """Writes the packing calls of one computation, and has the kernel calls read what they make."""

    def __init__(self, module: Module, graph: FlatGraph, threads: int) -> None:
        self._module, self._graph, self._threads = module, graph, threads
        self._edit = Edit(root_id=graph.computation.root_id)
        self._next = max(graph.instruction_of) + 1
        self._made: dict[tuple[int, str], InstructionProto] = {}
        """Weights, and what of the reader's attributes their packed form depends on → that form: two calls may share
        it."""
        self.names: set[str] = set()
        """Of the instructions whose values are packed weights that are early."""

    def edit(self, wanted: Mapping[int, _Wanted]) -> Edit:
        """The computation with them."""
        for given in self._graph.computation.instructions[:]:
            instruction = copy_of(given)
            if given.id in wanted:
                form = wanted[given.id].form
                instruction.operand_ids[form.operand] = self._packed(instruction, wanted[given.id])
                instruction.backend_config = to_text(form.call).encode()
                instruction.shape.tuple_shapes[-1].CopyFrom(_bytes(form.call["scratch"]).to_proto())
            self._edit.instructions.append(instruction)
        # What took one of several weights out as they were given is not read any more.
        self._edit.instructions = needed(self._edit.instructions, (), self._edit.root_id)
        return self._edit

    def _packed(self, reader: InstructionProto, wanted: _Wanted) -> int:
        """Id of the packed weights that a call is to read."""
        form, weights = wanted.form, reader.operand_ids[wanted.form.operand]
        key = (weights, to_text({n: form.call[n] for n in sorted(form.call) if n.startswith(_OF_WEIGHTS)}))
        if key not in self._made:
            if wanted.picked is None:
                packed = self._made[key] = self._pack(reader, form, weights)
                self.names.add(packed.name)
            else:
                self._made[key] = self._pack_all(reader, form, wanted.weights.shape, wanted.picked)
        return self._made[key].id

    def _pack(self, reader: InstructionProto, form: PackedForm, weights: int) -> InstructionProto:
        call = _call(self._module, self._fresh(), reader, form)
        call.operand_ids.append(weights)
        packed = _blob(self._module, self._fresh(), call, form)
        self._edit.instructions += [call, packed]
        return packed

    def _pack_all(self, reader: InstructionProto, form: PackedForm, shape: Shape, picked: Picked) -> InstructionProto:
        """Pack each of several weights, and take out the one that is asked for."""
        packed: list[InstructionProto] = []
        for number in range(picked.count):
            pieces = sliced(self._module, picked, number, shape, self._next)
            self._next += len(pieces)
            self._edit.instructions += pieces
            packed.append(self._pack(reader, form, pieces[-1].id))
        stack = stacked(self._module, packed, form.bytes, self._fresh())
        fusion, inner = taken_out(self._module, stack, picked, form.bytes, self._fresh(), self._threads)
        self._edit.instructions += [stack, fusion]
        self._edit.computations.append(inner)
        self.names.add(stack.name)
        return fusion

    def _fresh(self) -> int:
        self._next += 1
        return self._next - 1


def _call(module: Module, identifier: int, reader: InstructionProto, form: PackedForm) -> InstructionProto:
    proto = InstructionProto(opcode="custom-call", id=identifier, name=module.fresh_name(f"{reader.name}.pack"))
    proto.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
    for size in (form.bytes, form.pack_scratch):
        proto.shape.tuple_shapes.append(_bytes(size).to_proto())
    proto.custom_call_target = form.pack_target
    proto.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
    proto.backend_config = to_text(form.pack).encode()
    return proto


def _blob(module: Module, identifier: int, call: InstructionProto, form: PackedForm) -> InstructionProto:
    return new_instruction(module, "get-tuple-element", identifier, _bytes(form.bytes), call.id, stem=f"{call.name}ed")


def _bytes(count: int) -> Shape:
    return row_major("u8", (count,))
