"""Moved sums: the products and sums over all iterations behind a loop, in place of its accumulators."""

from __future__ import annotations

import struct
from dataclasses import replace

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node
from hlo_dispatch.analysis.in_place_updates import writes_in_place, written_operands
from hlo_dispatch.analysis.peeling import PEEL_INSERTED_COPIES, peel_node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.literals import literal_of
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape, in_memory_order, row_major, shape_of
from hlo_dispatch.ir.task_partitions import loop_backend_config
from hlo_dispatch.passes.accumulation_code_motion.accumulators import Accumulator, StackedOperand, Summand
from hlo_dispatch.passes.accumulation_code_motion.loop_body import StateLayout
from hlo_dispatch.passes.accumulation_code_motion.motion_plan import MotionPlan
from hlo_dispatch.passes.loop_state import placeholder, replace_elements
from hlo_dispatch.passes.write_after_read_hazards import resolve_hazards

_FORMATS = {"f32": "<f", "f64": "<d"}
"""Element type of sums that can be a product → how `struct` writes a number of it."""


class MovedSums:
    """Edits the computation around one loop; `draft()` is called once."""

    def __init__(self, module: Module, plan: MotionPlan, caller: FlatGraph, layout: StateLayout, threads: int) -> None:
        self._module, self._plan, self._graph, self._layout = module, plan, caller, layout
        self._threads, self._loop = threads, plan.instruction
        self._editor = Editor(module, caller.computation)
        self._initial = caller.instruction_of[self._loop.operand_ids[0]].operand_ids[:]
        """Ids of the values with which the loop begins."""
        self._operands: dict[StackedOperand, int] = {}
        self._summands: dict[Node, int] = {}
        self._index_of = {stack: index for index, stack in layout.stacks.items()}

    def draft(self) -> Editor:
        """The computation with the loop's new tuple, and with the sums behind the loop.

        Raises:
            RewriteUnsupported: the result has a form that leaves no place for a copy that a hazard needs.
        """
        editor, dead = self._editor, set[int]()
        self._begin_with_stacks()
        results = [editor.instructions[user] for user in editor.users(self._loop.id)]
        for accumulator in self._plan.accumulators:
            used = [result for result in results if result.tuple_index == accumulator.index]
            value = self._sum(accumulator) if used else -1
            for result in used:
                editor.replace_all_uses_with(result.id, value)
            node = self._graph.value_of[self._initial[accumulator.index]]
            dead.update(result.id for result in used)
            dead.update(n.producers[0] for n in (node, *node.operands) if n.opcode in PEEL_INSERTED_COPIES)
        editor.remove_dead_code(dead)
        updates = {
            identifier: written_operands(self._module, instruction)
            for identifier, instruction in editor.instructions.items()
            if identifier not in editor.created and writes_in_place(self._module, instruction)
        }
        resolve_hazards(editor, BufferAliasing(self._module).pairs(self._graph.computation), updates)
        return editor

    def _begin_with_stacks(self) -> None:
        builder = self._editor.before(self._loop.id)
        elements = {index: self._cleared(builder, stack.shape) for index, stack in self._layout.stacks.items()}
        elements |= {index: placeholder(builder) for index in self._layout.placeholders}
        replace_elements(self._editor, self._loop, 0, elements)

    def _cleared(self, builder: InstructionBuilder, shape: Shape) -> InstructionProto:
        """A stack of zeros, which no other instruction reads."""
        scalar = row_major(shape.element_type, ())
        literal = literal_of(scalar, bytes(scalar.bytes))
        assert literal is not None, "accumulators are of floating types"
        zero = builder.constant(scalar, literal)
        inner = self._new_computation("cleared_stack")
        broadcast = inner.make("broadcast", shape, inner.parameter(0, scalar).id)
        return self._fusion(builder, inner, broadcast, [zero.id])

    # --- behind the loop --------------------------------------------------------------------------

    def _sum(self, accumulator: Accumulator) -> int:
        """Id of an accumulator's value behind the loop: one iteration's expression, of all iterations' summands."""
        values = {summand.node: self._summand(summand) for summand in accumulator.summands}
        initial = self._initial[accumulator.index]
        is_zero = scalar_constant(peel_node(self._graph.value_of[initial], PEEL_INSERTED_COPIES)) == 0
        source: dict[Node, Node | None] = {accumulator.element: None if is_zero else accumulator.element}
        if not is_zero:
            values[accumulator.element] = initial
        steps: list[Node] = []
        for node in accumulator.expression:
            operands = [source.get(operand, operand) for operand in node.operands]
            if None in operands or node.opcode == INSERTED_COPY:
                source[node] = next((operand for operand in operands if operand is not None), None)
            else:
                steps.append(node)
        result = source.get(accumulator.result, accumulator.result)
        assert result is not None, "an accumulator has summands"
        if result in values:
            return values[result]
        builder = self._editor.after(self._loop.id, result.proto)
        if all(_is_bitcast(node) for node in steps):
            return builder.make("bitcast", result.shape, *values.values()).id
        inner, ids = self._new_computation("accumulated"), dict[Node, int]()
        for number, node in enumerate(values):
            ids[node] = inner.parameter(number, node.shape).id
        for node in steps:
            operands = [source.get(operand, operand) or operand for operand in node.operands]
            ids[node] = inner.clone(node.proto, [ids[operand] for operand in operands]).id
        return self._fusion(builder, inner, inner.computation.instructions[-1], list(values.values())).id

    def _summand(self, summand: Summand) -> int:
        """Id of the sum of what all iterations add, of which several accumulators may add slices."""
        if summand.node not in self._summands:
            self._summands[summand.node] = self._summed(summand)
        return self._summands[summand.node]

    def _summed(self, summand: Summand) -> int:
        operands = [self._operand(operand) for operand in summand.operands]
        builder = self._editor.after(self._loop.id, summand.node.proto)
        if summand.node.opcode == "reduce":
            return self._reduction(builder, summand, operands[0])
        if summand.node.opcode == "dot":
            made = builder.clone(summand.node.proto, operands)
            made.ClearField("backend_config")
            return made.id
        # A result in row-major order, which XLA's products have.
        shape = summand.node.shape
        in_order = operands if shape.minor_to_major[0] else operands[::-1]
        made = builder.make("dot", in_memory_order(shape), *in_order)
        made.dot_dimension_numbers.lhs_contracting_dimensions.append(0)
        made.dot_dimension_numbers.rhs_contracting_dimensions.append(0)
        return made.id if made.shape == shape.to_proto() else builder.make("bitcast", shape, made.id).id

    def _reduction(self, builder: InstructionBuilder, summand: Summand, operand: int) -> int:
        """A reduction like one iteration's, in the same library's fusion; outside of loops else a product with ones.

        XLA's generated code would read an array of all iterations column by column. An outer loop's reduction moves on.
        """
        body, node = self._plan.loop.body, summand.node
        producer = body.instruction_of[node.producers[0]]
        is_library = producer.opcode == "fusion" and producer.fusion_kind == "kCustom"
        shape = summand.operands[0].stacked_shape(self._plan.loop.trips)
        shape = replace(shape, element_type=node.operands[0].shape.element_type)
        is_outside = self._graph.computation.id == self._module.entry.id
        if is_outside and not is_library and shape.element_type in _FORMATS and _sums_columns(node):
            return self._product_with_ones(builder, summand, shape, operand)
        inner = self._new_computation("summed")
        array = inner.parameter(0, shape)
        start = inner.clone(node.operands[1].proto, ())
        self._editor.computations += inner.clone_all(
            [node.proto], ids := {node.proto.operand_ids[0]: array.id, node.proto.operand_ids[1]: start.id}
        )
        self._editor.computations.append(inner.finished(ids[node.proto.id]))
        kind, config = (producer.fusion_kind, producer.backend_config) if is_library else ("kLoop", b"")
        return builder.fusion(inner.computation, (operand,), node.shape, kind=kind, config=config, stem="summed").id

    def _product_with_ones(self, builder: InstructionBuilder, summand: Summand, shape: Shape, operand: int) -> int:
        """The sums of an array's columns as a product of one row, whose ones have the type of what is summed up."""
        rows = shape.dimensions[summand.node.proto.dimensions[0]]
        columns, wide, narrow = shape.elements // rows, shape.element_type, summand.operands[0].shape.element_type
        array = builder.make("bitcast", row_major(wide, (rows, columns)), operand)
        scalar = row_major(wide, ())
        literal = literal_of(scalar, struct.pack(_FORMATS[wide], 1.0))
        assert literal is not None
        inner = self._new_computation("ones")
        one = inner.make("convert", row_major(narrow, ()), inner.parameter(0, scalar).id)
        ones = inner.make("broadcast", row_major(narrow, (1, rows)), one.id)
        root = inner.make("convert", row_major(wide, (1, rows)), ones.id)
        row = self._fusion(builder, inner, root, [builder.constant(scalar, literal).id])
        dot = builder.make("dot", row_major(wide, (1, columns)), row.id, array.id)
        dot.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
        dot.dot_dimension_numbers.rhs_contracting_dimensions.append(0)
        return builder.make("bitcast", summand.node.shape, dot.id).id

    def _operand(self, operand: StackedOperand) -> int:
        """Id of an operand of a sum over all iterations."""
        if operand not in self._operands:
            stack = self._plan.stack_of[operand]
            index = self._index_of[stack] if stack.element is None else stack.element
            builder = self._editor.after(self._loop.id, operand.value.proto)
            array_shape = self._editor.instructions[self._loop.id].shape.tuple_shapes[index]
            array = builder.get_tuple_element(self._loop.id, index, array_shape)
            shape = operand.stacked_shape(self._plan.loop.trips)
            made = builder.make("bitcast", shape, array.id)
            if operand.widened_to:
                inner = self._new_computation("widened")
                wide = replace(shape, element_type=operand.widened_to)
                made = self._fusion(
                    builder, inner, inner.make("convert", wide, inner.parameter(0, shape).id), [made.id]
                )
            self._operands[operand] = made.id
        return self._operands[operand]

    # --- loop fusions -----------------------------------------------------------------------------

    def _new_computation(self, stem: str) -> InstructionBuilder:
        return InstructionBuilder.of_new_computation(self._module, stem, self._graph.computation)

    def _fusion(
        self, builder: InstructionBuilder, inner: InstructionBuilder, root: InstructionProto, operands: list[int]
    ) -> InstructionProto:
        """A loop fusion of a new computation, which ends with `root`."""
        self._editor.computations.append(inner.finished(root.id))
        config = loop_backend_config(shape_of(root.shape), self._threads)
        return builder.fusion(inner.computation, operands, root.shape, config=config, stem=inner.computation.name)


def _sums_columns(node: Node) -> bool:
    """Whether a reduction adds up the columns of an array, which stay in their order, and nothing else."""
    (summed,) = node.proto.dimensions
    remaining = [n - (n > summed) for n in node.operands[0].shape.minor_to_major if n != summed]
    return remaining == [*node.shape.minor_to_major] and scalar_constant(node.operands[1]) == 0


def _is_bitcast(node: Node) -> bool:
    """Whether a rearranging instruction leaves all elements where they are in memory."""
    if node.opcode == "transpose":
        source = node.operands[0].shape.minor_to_major
        return tuple(node.proto.dimensions[number] for number in node.shape.minor_to_major) == source
    is_copy = node.opcode == "copy" and node.shape.minor_to_major == node.operands[0].shape.minor_to_major
    return node.opcode == "bitcast" or is_copy
