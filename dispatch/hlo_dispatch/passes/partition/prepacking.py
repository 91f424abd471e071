"""Weight prepacking: inserts a reorder call into the kernel's own layout for each frozen weight.

The reorder call depends on static values alone, so the partition moves it to the prologue.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.analysis.binding_time import static_inputs_by_computation, static_values
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.analysis.stacked_slices import StackedSlice, find_stacked_slices
from hlo_dispatch.ir.module import Module, copy_of, new_instruction
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI, ELEMENT_TYPE_NUMBERS, InstructionProto
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.passes.backend_config import from_text, to_text
from hlo_dispatch.passes.edit import replace_computations
from hlo_dispatch.passes.instruction_order import without_dead_code
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.passes.partition.stacked_weights import concatenated, slice_at_index, slice_of_stack
from hlo_dispatch.vendor.prepacking import PrepackedCall, prepacked_call

_WEIGHTS_OPERAND = 1
"""Operand number of a call's weights."""
_WEIGHTS_ATTRIBUTES = ("weights_", "packed_")
"""Prefixes of the names of the weights' attributes."""


def prepack(
    serialized: bytes, frozen: AbstractSet[int], kernels: Mapping[str, str], threads: int
) -> tuple[bytes, set[str]]:
    """Insert a prepack call for every kernel call whose weights are static.

    Args:
        serialized: a dispatched module.
        frozen: numbers of the parameters that are frozen.
        kernels: target of a custom-call → the kernel's name.
        threads: number of XLA's threads.

    Returns:
        the module, and the names of the instructions whose values are prepacked weights.
    """
    module = Module.from_bytes(serialized)
    prepacked: set[str] = set()
    edits: dict[int, Edit] = {}
    with flat_graphs(module) as graph_of:
        for identifier, static_inputs in static_inputs_by_computation(module, frozen, graph_of).items():
            graph = graph_of(identifier)
            if requests := _prepack_requests(graph, static_inputs, kernels):
                prepacker = _Prepacker(module, graph, threads)
                edits[identifier] = prepacker.edit(requests)
                prepacked |= prepacker.names
    if not edits:
        return serialized, prepacked
    replace_computations(module, edits)
    return module.to_bytes(), prepacked


@dataclass(frozen=True)
class _PrepackRequest:
    """A kernel call whose weights can be prepacked."""

    prepacked_call: PrepackedCall
    weights: Node
    stacked_slice: StackedSlice | None
    """Set where the weights are a slice of stacked weights."""


def _prepack_requests(
    graph: FlatGraph, static_inputs: AbstractSet[int], kernels: Mapping[str, str]
) -> Mapping[int, _PrepackRequest]:
    """Id of a kernel call whose weights are static, or a slice of static stacked weights → its prepack request."""
    static = static_values(graph, static_inputs)
    slices = find_stacked_slices(graph, static)
    found: dict[int, _PrepackRequest] = {}
    for instruction in graph.instruction_of.values():
        kernel = kernels.get(instruction.custom_call_target) if instruction.opcode == "custom-call" else None
        if kernel is None or len(instruction.operand_ids) <= _WEIGHTS_OPERAND:
            continue
        weights = graph.value_of[instruction.operand_ids[_WEIGHTS_OPERAND]]
        if weights.shape.is_array and (weights in static or weights in slices):
            prepacked_call = _prepacked_call_of(kernel, from_text(instruction.backend_config.decode()))
            if prepacked_call is not None:
                found[instruction.id] = _PrepackRequest(prepacked_call, weights, slices.get(weights))
    return found


def _prepacked_call_of(kernel: str, attributes: dict[str, Any]) -> PrepackedCall | None:
    # The tuner asks for plain weights where they measured faster.
    return None if attributes.get("weights_format") == "plain" else prepacked_call(kernel, attributes)


class _Prepacker:
    """Inserts the prepack calls of one computation and rewires its kernel calls to their results."""

    def __init__(self, module: Module, graph: FlatGraph, threads: int) -> None:
        self._module, self._graph, self._threads = module, graph, threads
        self._edit = Edit(root_id=graph.computation.root_id)
        self._next = max(graph.instruction_of) + 1
        self._prepacked_by_key: dict[tuple[int, str], InstructionProto] = {}
        """(weights, the consumer's attributes that determine the layout) → prepacked weights, which calls may share."""
        self.names: set[str] = set()
        """Names of the instructions whose values are static prepacked weights."""

    def edit(self, requests: Mapping[int, _PrepackRequest]) -> Edit:
        """The computation with its prepack calls."""
        for original in self._graph.computation.instructions[:]:
            instruction = copy_of(original)
            if original.id in requests:
                prepacked_call = requests[original.id].prepacked_call
                instruction.operand_ids[prepacked_call.operand] = self._prepacked_weights(
                    instruction, requests[original.id]
                )
                instruction.backend_config = to_text(prepacked_call.call).encode()
                instruction.shape.tuple_shapes[-1].CopyFrom(_bytes(prepacked_call.call["scratch"]).to_proto())
            self._edit.instructions.append(instruction)
        # The slices of the original stacked weights are dead now.
        self._edit.instructions = without_dead_code(self._edit.instructions, (), self._edit.root_id)
        return self._edit

    def _prepacked_weights(self, consumer: InstructionProto, request: _PrepackRequest) -> int:
        """Id of the prepacked weights of one kernel call."""
        prepacked_call, weights = request.prepacked_call, consumer.operand_ids[request.prepacked_call.operand]
        key = (
            weights,
            to_text(
                {n: prepacked_call.call[n] for n in sorted(prepacked_call.call) if n.startswith(_WEIGHTS_ATTRIBUTES)}
            ),
        )
        if key not in self._prepacked_by_key:
            if request.stacked_slice is None:
                prepacked = self._prepacked_by_key[key] = self._emit_prepack(consumer, prepacked_call, weights)
                self.names.add(prepacked.name)
            else:
                self._prepacked_by_key[key] = self._prepack_stack(
                    consumer, prepacked_call, request.weights.shape, request.stacked_slice
                )
        return self._prepacked_by_key[key].id

    def _emit_prepack(
        self, consumer: InstructionProto, prepacked_call: PrepackedCall, weights: int
    ) -> InstructionProto:
        call = _call(self._module, self._fresh(), consumer, prepacked_call)
        call.operand_ids.append(weights)
        prepacked = _prepacked_result(self._module, self._fresh(), call, prepacked_call)
        self._edit.instructions += [call, prepacked]
        return prepacked

    def _prepack_stack(
        self, consumer: InstructionProto, prepacked_call: PrepackedCall, shape: Shape, stacked_slice: StackedSlice
    ) -> InstructionProto:
        """Prepack each slice of the stacked weights, concatenate them, and slice the result at the same index."""
        prepacked: list[InstructionProto] = []
        for number in range(stacked_slice.count):
            slice_ops = slice_of_stack(self._module, stacked_slice, number, shape, self._next)
            self._next += len(slice_ops)
            self._edit.instructions += slice_ops
            prepacked.append(self._emit_prepack(consumer, prepacked_call, slice_ops[-1].id))
        stack = concatenated(self._module, prepacked, prepacked_call.bytes, self._fresh())
        fusion, inner = slice_at_index(
            self._module, stack, stacked_slice, prepacked_call.bytes, self._fresh(), self._threads
        )
        self._edit.instructions += [stack, fusion]
        self._edit.computations.append(inner)
        self.names.add(stack.name)
        return fusion

    def _fresh(self) -> int:
        self._next += 1
        return self._next - 1


def _call(
    module: Module, identifier: int, consumer: InstructionProto, prepacked_call: PrepackedCall
) -> InstructionProto:
    proto = InstructionProto(opcode="custom-call", id=identifier, name=module.fresh_name(f"{consumer.name}.pack"))
    proto.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
    for size in (prepacked_call.bytes, prepacked_call.prepack_scratch):
        proto.shape.tuple_shapes.append(_bytes(size).to_proto())
    proto.custom_call_target = prepacked_call.prepack_target
    proto.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
    proto.backend_config = to_text(prepacked_call.prepack_attributes).encode()
    return proto


def _prepacked_result(
    module: Module, identifier: int, call: InstructionProto, prepacked_call: PrepackedCall
) -> InstructionProto:
    return new_instruction(
        module, "get-tuple-element", identifier, _bytes(prepacked_call.bytes), call.id, stem=f"{call.name}ed"
    )


def _bytes(count: int) -> Shape:
    return row_major("u8", (count,))
