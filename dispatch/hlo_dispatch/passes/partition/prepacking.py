"""Weight prepacking: inserts a reorder call into the kernel's own layout for frozen weights, and for those of a loop.

The reorder call depends on static values alone, so the partition moves it to the prologue, or loop-invariant code
motion to the front of its loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from hlo_dispatch.analysis.binding_time import StaticRule, static_inputs_by_computation, static_values
from hlo_dispatch.analysis.buffer_assignment import padded
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.analysis.stacked_slices import MAX_STATIC_SLICES
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.kernel_call import KernelCall, OperandSlice, operand_roles
from hlo_dispatch.ir.literals import zero_bytes
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES, QUANTIZED_WEIGHT_TYPES
from hlo_dispatch.vendor.prepacking import PrepackedCall, can_prepack, prepack_targets, prepacked_call

_WEIGHTS_ATTRIBUTES = ("weights_", "packed_")
"""Prefixes of the names of the weights' attributes."""
MOST_PADDING = 17 / 16
"""Bytes of prepacked integers over those that they take plain, at most: integers are there to take little memory."""
MOST_IN_FRONT_OF_LOOPS = 1 << 30
"""Maximum bytes of weights that are prepacked in each run: as much memory is held while a loop runs."""


def prepack(module: Module, context: PassContext) -> set[int]:
    """Insert a prepack call for every kernel call whose weights are static."""
    frozen = context.frozen | context.widened
    if not (frozen or context.loop_weights):
        return set()
    kernels = {kernel.target: name for name, kernel in context.table.kernels.items()}
    editors: list[Editor] = []
    left = math.inf if frozen else MOST_IN_FRONT_OF_LOOPS
    with flat_graphs(module) as graph_of:
        rule = context.static_rule
        inputs = static_inputs_by_computation(module, context.frozen, graph_of, context.loop_weights, rule)
        narrow = inputs
        if context.widened:
            narrow = static_inputs_by_computation(module, frozen, graph_of, context.loop_weights, rule)
        for identifier, static_inputs in narrow.items():
            if not static_inputs:
                continue  # the reorders of a loop's constants would stay in it
            graph = graph_of(identifier)
            requests = dict[int, _PrepackRequest]()
            static = _Static.of(graph, inputs.get(identifier, frozenset()), static_inputs, rule)
            for consumer, request in _prepack_requests(graph, static, kernels, is_once=bool(frozen)).items():
                if request.bytes <= left:
                    requests[consumer] = request
                    left -= request.bytes
            if requests:
                prepacker = _Prepacker(module, graph)
                editors.append(prepacker.draft(requests))
                context.prepacked |= prepacker.names
    return commit(module, editors)


@dataclass(frozen=True)
class _PrepackRequest:
    """A kernel call whose weights can be prepacked."""

    call: KernelCall
    prepacked_call: PrepackedCall
    number: int
    """The weights' operand number."""
    weights: Node
    """The weights, or the stacked weights that the call reads a slice of."""

    @property
    def slice(self) -> OperandSlice | None:
        """The slice of the stacked weights that the call reads."""
        return self.call.slices.get(self.number)

    @property
    def bytes(self) -> int:
        """Bytes of the prepacked weights, all slices together."""
        return self.prepacked_call.bytes * (1 if self.slice is None else self.slice.count)


@dataclass(frozen=True)
class _Static:
    """Static values of one computation, as far as they may be prepacked."""

    values: AbstractSet[Node]
    narrow: AbstractSet[Node]
    """Integers that depend on parameters of narrower stored types, too."""

    @classmethod
    def of(
        cls, graph: FlatGraph, inputs: AbstractSet[int], narrow_inputs: AbstractSet[int], rule: StaticRule
    ) -> _Static:
        """
        Args:
            narrow_inputs: the static inputs with those of narrower stored types.
        """
        values = static_values(graph, inputs, rule)
        if narrow_inputs == inputs:
            return cls(values, frozenset())
        found = static_values(graph, narrow_inputs, rule)
        return cls(values, {node for node in found if node.shape.element_type in QUANTIZED_WEIGHT_TYPES})

    def __contains__(self, node: Node) -> bool:
        return node in self.values or node in self.narrow


def _prepack_requests(
    graph: FlatGraph, static: _Static, kernels: Mapping[str, str], *, is_once: bool
) -> Mapping[int, _PrepackRequest]:
    """Id of a kernel call whose weights are static, or a slice of static stacked weights → its prepack request.

    Args:
        is_once: whether weights are prepacked ahead of all runs; else by each, which integers, whose numbers change
            places one by one, do not repay.
    """
    found: dict[int, _PrepackRequest] = {}
    for instruction in graph.instruction_of.values():
        kernel = kernels.get(instruction.custom_call_target) if instruction.opcode == "custom-call" else None
        if kernel is None or not can_prepack(kernel):
            continue
        call = graph.module.kernel_call(instruction)
        number = operand_roles(call.attributes).index("weights")
        weights = graph.value_of[call.operands[number]]
        if weights in static and _is_sliced_evenly(call.slices.get(number), weights):
            prepacked_call = _prepacked_call_of(kernel, call.attributes)
            if prepacked_call is not None:
                found[instruction.id] = _PrepackRequest(call, prepacked_call, number, weights)
    readers = {graph.value_of[consumer] for consumer in found}
    return {
        consumer: request
        for consumer, request in found.items()
        if not _is_weight_only_quantized(request)
        or (is_once and _takes_no_more_memory(request, {*readers, graph.root}))
    }


def _is_weight_only_quantized(request: _PrepackRequest) -> bool:
    """Whether integers are multiplied with numbers: they are there to take little memory."""
    is_integer = request.weights.shape.element_type in QUANTIZED_WEIGHT_TYPES
    return is_integer and request.call.attributes["src_type"] not in INTEGER_TYPES


def _takes_no_more_memory(request: _PrepackRequest, readers: AbstractSet[Node]) -> bool:
    """Whether weights that are prepacked take about as much memory as they do plain, and only `readers` read them."""
    pending = [request.weights]
    while pending:
        for user in pending.pop().users:
            if user.opcode == "bitcast":
                pending.append(user)
            elif user not in readers:
                return False
    return request.bytes <= MOST_PADDING * request.weights.shape.bytes


def _is_sliced_evenly(of: OperandSlice | None, weights: Node) -> bool:
    """Whether the weights are no slice, or one of a few slices that together are the stacked weights."""
    return of is None or (of.count <= MAX_STATIC_SLICES and of.count * of.elements == weights.shape.elements)


def _prepacked_call_of(kernel: str, attributes: Mapping[str, Any]) -> PrepackedCall | None:
    # The tuner asks for plain weights where they measured faster.
    return None if attributes.get("weights_format") == "plain" else prepacked_call(kernel, attributes)


class _Prepacker:
    """Inserts the prepack calls of one computation and rewires its kernel calls to their results."""

    def __init__(self, module: Module, graph: FlatGraph) -> None:
        self._editor = Editor(module, graph.computation)
        self._prepacked_by_key: dict[tuple[int, int, str], int] = {}
        """(weights, number of slices, the consumer's attributes that determine the layout) → prepacked weights, which
        calls may share."""
        self.names: set[str] = set()
        """Names of the instructions whose values are static prepacked weights."""

    def draft(self, requests: Mapping[int, _PrepackRequest]) -> Editor:
        """The computation with its prepack calls."""
        for consumer, request in requests.items():
            number, size = request.number, request.prepacked_call.bytes
            operands, slices = list(request.call.operands), dict(request.call.slices)
            operands[number] = self._prepacked_weights(consumer, request)
            if (of := request.slice) is not None:
                slices[number] = replace(of, stride=padded(size), elements=size)
            call = request.call.with_attributes(request.prepacked_call.call)
            self._editor.write(consumer, replace(call, operands=tuple(operands), slices=slices))
        self._editor.remove_dead_code()
        return self._editor

    def _prepacked_weights(self, consumer: int, request: _PrepackRequest) -> int:
        """Id of the prepacked weights of one kernel call."""
        prepacked_call = request.prepacked_call
        weights, of = request.call.operands[request.number], request.slice
        key = (weights, 0 if of is None else of.count, _layout(prepacked_call.call))
        if key not in self._prepacked_by_key:
            builder = self._editor.before(consumer)
            stem = f"{self._editor.instructions[consumer].name}.pack"
            if of is None:
                prepacked = _emit_prepack(builder, stem, prepacked_call, weights)
                self.names.add(prepacked.name)
            else:
                prepacked = self._prepack_stack(builder, stem, request, of)
            self._prepacked_by_key[key] = prepacked.id
        return self._prepacked_by_key[key]

    def _prepack_stack(
        self, builder: InstructionBuilder, stem: str, request: _PrepackRequest, of: OperandSlice
    ) -> InstructionProto:
        """Prepack each slice of the stacked weights, and concatenate them at equal distances."""
        size, shape = request.prepacked_call.bytes, request.weights.shape

        def matrix(rows: int) -> Shape:
            return replace(row_major(shape.element_type, (rows, of.elements)), packed_bits=shape.packed_bits)

        weights = request.call.operands[request.number]
        rows = builder.make("bitcast", matrix(of.count), weights).id
        gap = padded(size) - size
        between = [builder.constant(row_major("u8", (gap,)), zero_bytes(gap), "gap").id] if gap else []
        parts: list[int] = []
        for number in range(of.count):
            value = builder.slice(rows, matrix(1), (number, 0))
            parts += [_emit_prepack(builder, stem, request.prepacked_call, value.id).id, *between]
        stack = builder.concatenate(parts, row_major("u8", (of.count * padded(size),)))
        self.names.add(stack.name)
        return stack


def prepacked_content(instruction: InstructionProto) -> bytes | None:
    """What determines the value of a prepack call besides the weights: their layout; None: it is no prepack call.

    The call also describes its consumer, whose number of rows is another in a prompt of another length.
    """
    if instruction.custom_call_target not in prepack_targets():
        return None
    return f"{instruction.custom_call_target} {_layout(KernelCall.read(instruction).attributes)}".encode()


def _layout(attributes: Mapping[str, Any]) -> str:
    """The attributes of a consumer that determine the layout of its prepacked weights."""
    return Attributes({n: attributes[n] for n in sorted(attributes) if n.startswith(_WEIGHTS_ATTRIBUTES)}).text


def _emit_prepack(
    builder: InstructionBuilder, stem: str, prepacked_call: PrepackedCall, weights: int
) -> InstructionProto:
    """Emit a prepack call; returns its result."""
    shape, attributes = row_major("u8", (prepacked_call.bytes,)), Attributes(prepacked_call.prepack_attributes)
    call = KernelCall(prepacked_call.prepack_target, (weights,), attributes, (shape,), prepacked_call.prepack_scratch)
    made = builder.kernel_call(call, stem)
    return builder.get_tuple_element(made.id, 0, shape, f"{made.name}ed")
