"""In-place parts: an array that is put together again from its own slices, some updated, is updated where it lies.

A decoder with the caches of all layers in one array slices each layer's keys and values out of it, updates them, and
stacks all of them: three copies of the whole cache for each token. Here the array is updated part by part, and what
reads an updated part reads a slice of the array.
"""

from __future__ import annotations

import contextlib

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_SHAPES, peel_instruction
from hlo_dispatch.analysis.reassembled_arrays import ReassembledArray, UpdatedPart, find_reassembled_arrays
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.literals import index_literal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.module_rewriter import ComputationRewriter
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported


def update_parts_in_place(module: Module, context: PassContext) -> set[int]:
    """Update the arrays that a loop or the program gives back where they lie."""
    if not module.opcodes >= {"concatenate", "dynamic-update-slice"}:
        return set()
    editors: list[Editor] = []
    aliasing = BufferAliasing(module)
    for computation, is_small in module.control_flow_computations():
        if not is_small and _may_reassemble(module, computation):
            with contextlib.suppress(RewriteUnsupported):  # a control dependency on one of the instructions
                editor = _draft(module, computation, aliasing, context.threads)
                editors += [editor] if editor is not None else []
    if editors:
        context.keep_stock(module)
    return commit(module, editors)


def _may_reassemble(module: Module, computation: ComputationProto) -> bool:
    """Whether an element of the result is a concatenation."""
    by_id = {instruction.id: instruction for instruction in computation.instructions[:]}
    root = by_id[computation.root_id]
    results = root.operand_ids[:] if root.opcode == "tuple" else [root.id]
    return any(_is_concatenation(module, by_id[result], by_id) for result in results)


def _is_concatenation(module: Module, value: InstructionProto, by_id: dict[int, InstructionProto]) -> bool:
    value = peel_instruction(value, PEEL_SHAPES, by_id)
    if value.opcode == "fusion":
        fused = module.computations[value.called_computation_ids[0]]
        inner = {instruction.id: instruction for instruction in fused.instructions[:]}
        return _is_concatenation(module, inner[fused.root_id], inner)
    return value.opcode == "concatenate"


def _draft(module: Module, computation: ComputationProto, aliasing: BufferAliasing, threads: int) -> Editor | None:
    graph = FlatGraph(module, computation)
    try:
        arrays = find_reassembled_arrays(graph)
        if not arrays:
            return None
        covered = {node for array in arrays for node in array.inside}
        results = [node for node in graph.nodes if node in covered and not covered.issuperset(node.users)]
        rewriter = ComputationRewriter(module, graph, threads, covered=covered, results=results, aliasing=aliasing)

        def emit() -> Node:
            for array in arrays:
                _PartsEmitter(rewriter, graph, array, is_shared=_is_shared(graph, array, aliasing)).emit()
            return graph.root

        return rewriter.rewrite(emit)
    finally:
        graph.break_reference_cycles()


def _is_shared(graph: FlatGraph, array: ReassembledArray, aliasing: BufferAliasing) -> bool:
    """Whether the array and its result have one buffer."""
    source, root = array.source, graph.root
    path = (source.proto.parameter_number,)
    if source.opcode == "get-tuple-element":
        path = (source.operands[0].proto.parameter_number, source.proto.tuple_index)
    number = root.operands.index(array.result) if root.opcode == "tuple" else None
    return (path, number) in aliasing.certain_pairs(graph.computation)


class _PartsEmitter:
    """Emits one array's updates and the slices of updated parts."""

    def __init__(
        self, rewriter: ComputationRewriter, graph: FlatGraph, array: ReassembledArray, *, is_shared: bool
    ) -> None:
        self._rewriter, self._graph, self._array = rewriter, graph, array
        self._whole, self._is_shared = array.source.shape, is_shared

    def emit(self) -> None:
        """Emit them."""
        parts, source = self._array.parts, self._array.source
        value = self._rewriter.identifier(source)
        if not self._is_shared:
            value = self._rewriter.near(parts[0].update).make("copy", self._whole, value, stem="array_copy").id
        values: list[int] = []
        for part in parts:
            value = self._emit_update(part, value, is_last=part is parts[-1])
            values.append(value)
        for number, part in enumerate(parts):
            if not self._array.inside.issuperset(part.update.users):
                self._emit_read(part, values[self._last_before_readers(number)])

    def _emit_update(self, part: UpdatedPart, value: int, *, is_last: bool) -> int:
        update, rewriter = part.update, self._rewriter
        rows, starts = update.operands[1], update.operands[2:]
        builder = rewriter.near(update)
        shape = self._part_shape(part, rows.shape)
        identifier = rewriter.identifier(rows)
        if shape != rows.shape:
            identifier = builder.make("bitcast", shape, identifier).id
        index = Shape(starts[0].shape.element_type, (), ())
        indices: list[int] = []
        for along, own in enumerate(part.own):
            if own is not None and update.shape.dimensions[own] == self._whole.dimensions[along]:
                indices.append(rewriter.identifier(starts[own]))
            else:
                indices.append(builder.constant(index, index_literal(index.element_type, part.first[along])).id)
        identifier_of_result = rewriter.identifier(self._array.result) if is_last else None
        made = builder.make(
            "dynamic-update-slice", self._whole, value, identifier, *indices, identifier=identifier_of_result
        )
        return made.id

    def _emit_read(self, part: UpdatedPart, value: int) -> None:
        update, builder = part.update, self._rewriter.near(part.update)
        sliced = builder.slice(value, self._part_shape(part, update.shape), part.first)
        builder.make("bitcast", update.shape, sliced.id, identifier=self._rewriter.identifier(update))

    def _part_shape(self, part: UpdatedPart, shape: Shape) -> Shape:
        return Shape(shape.element_type, part.sizes(shape), self._whole.minor_to_major)

    def _last_before_readers(self, number: int) -> int:
        """Number of the last update that no reader of this updated part must run before."""
        parts = self._array.parts
        update = parts[number].update
        reached = {update}
        for node in self._graph.nodes[update.index + 1 :]:
            if not reached.isdisjoint(node.operands):
                reached.add(node)
        for later in range(number + 1, len(parts)):
            if not reached.isdisjoint(parts[later].update.operands[1:]):
                return later - 1
        return len(parts) - 1
