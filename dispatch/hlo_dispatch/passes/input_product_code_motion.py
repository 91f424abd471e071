"""Input product code motion: multiplies the input of all iterations with a loop's weights in front of it.

A scan over a sequence multiplies a few rows in each iteration, which reads all of the weights: x_t W of a recurrent
cell. In front of the loop that is one product over all iterations, of which the loop reads one slice an iteration. It
precedes matching, which sees that product like any other. A loop that is one kernel call stays: the kernel does the
same itself. Only the order of sums changes, as in every dispatched product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from hlo_dispatch.analysis.binding_time import is_parameter_element, static_values
from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.counted_loop import CountedLoop, StackedAccess
from hlo_dispatch.analysis.dot_dimensions import dot_dimensions
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.analysis.in_place_updates import writes_in_place, written_operands
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, peel_node
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.literals import index_literal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import BYTES_PER_ELEMENT, InstructionProto
from hlo_dispatch.ir.shape import FLOAT_TYPES, HALF_TYPES, Shape, row_major, shape_of
from hlo_dispatch.ir.task_partitions import loop_backend_config
from hlo_dispatch.passes.accumulation_code_motion.accumulators import with_leading_dimension
from hlo_dispatch.passes.cloned_values import clone_index, clone_into_caller
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.loop_state import can_change_state, commit_loop, replace_elements
from hlo_dispatch.passes.module_rewriter import ComputationRewriter
from hlo_dispatch.passes.small_calls import LEAST_BYTES_MOVED, inline_small_loops
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported, resolve_hazards

LEAST_TRIPS = 8
"""Minimum trip count: fewer reads of the weights pay for no array more."""
LEAST_BYTES = 64 << 10
"""Smaller weights stay in a core's own cache from one iteration to the next."""
_STACK_ACCESSES = 3
"""The results of all iterations are written, read from memory and, as slices, written once more."""
_LEAST_RATIO = 8
"""Smallest ratio of bytes saved to bytes spent. A step of training an LSTM or GRU of 512 units was 1.0 to 1.1 times as
fast with 8 rows, where it is 21, and 0.95 to 1.04 times with 32, where it is 5 (processor time on a Zen 5)."""
_FREE_BYTES = 16 << 20
"""Bytes of results that any loop may get; otherwise, as many as the stacked arrays that it carries already."""
_NEEDED = frozenset(("dot", "dynamic-slice"))


@dataclass(frozen=True)
class InputProduct:
    """A dot of one iteration's slice of a stacked array with weights that no iteration changes."""

    dot: Node
    result: Node
    """What its users read: itself, or what it is rounded to."""
    slice: Node
    access: StackedAccess
    conversions: tuple[str, ...]
    """The element types to which the slice is converted, one after the other, before the dot reads it."""
    weights: Node
    contracting: int
    """The weights' dimension that is summed over."""
    rows: int
    depth: int
    columns: int

    @cached_property
    def covered(self) -> frozenset[Node]:
        return frozenset((self.dot, self.result))

    @property
    def index(self) -> Node:
        """The number of an iteration's slice."""
        return self.slice.operands[1 + self.access.dimension]

    def results(self, trips: int) -> Shape:
        """The results of all iterations, outermost in memory."""
        return with_leading_dimension(self.result.shape, trips)

    def bytes(self, trips: int) -> int:
        """Of the results of all iterations, and of the input in the type that is multiplied."""
        converted = trips * self.rows * self.depth * BYTES_PER_ELEMENT[self.conversions[-1]] if self.conversions else 0
        return self.results(trips).bytes + converted


def move_input_products(module: Module, context: PassContext) -> set[int]:
    """Move the products of stacked inputs in front of counted loops where that reads fewer bytes, inner loops first."""
    changed: set[int] = set()
    if context.planner.policy == "never" or "while" not in module.opcodes or not module.opcodes >= _NEEDED:
        return changed
    # Callees precede callers.
    for caller in [computation.id for computation, _ in module.control_flow_computations()]:
        changed |= inline_small_loops(module, caller, lambda loop: _repays_inlining(module, loop), context)
        loops = module.computations[caller].instructions[:] if "while" in module.opcodes_of(caller) else ()
        for loop in [i.id for i in loops if i.opcode == "while" and (trip_count(i) or 0) >= LEAST_TRIPS]:
            with contextlib.suppress(RewriteUnsupported), flat_graphs(module) as graph_of:
                if (drafts := _drafts(module, graph_of, caller, loop, context)) is not None:
                    context.keep_stock(module)
                    context.is_moved = True
                    changed |= commit_loop(module, *drafts, loop)
    return changed


def _repays_inlining(module: Module, loop: InstructionProto) -> bool:
    """Whether the weights of a loop in a small call with which its input is multiplied are large."""
    if (trip_count(loop) or 0) < LEAST_TRIPS:
        return False
    with flat_graphs(module) as graph_of:
        counted = CountedLoop.of(loop, graph_of(loop.called_computation_ids[0]))
        chosen = () if counted is None else _chosen(loop, counted)
        return sum(product.weights.shape.bytes for product in chosen) >= LEAST_BYTES_MOVED


def _drafts(
    module: Module, graph_of: Callable[[int], FlatGraph], caller_id: int, loop_id: int, context: PassContext
) -> tuple[Editor, Editor] | None:
    """Drafts of a loop's body and of the computation around it; None where nothing moves.

    Raises:
        RewriteUnsupported: an instruction has a control dependency on a moved one.
    """
    caller = Editor(module, module.computations[caller_id])
    instruction = caller.instructions[loop_id]
    loop = CountedLoop.of(instruction, graph_of(instruction.called_computation_ids[0]))
    products = [] if loop is None else _chosen(instruction, loop)
    if loop is None or not products or not can_change_state(module, caller, instruction, 0, loop.body):
        return None
    graph = graph_of(caller_id)
    recurrents = context.planner.recurrents.find(graph)
    if any(node is graph.value_of[loop_id] and not isinstance(found, Refusal) for node, found in recurrents):
        return None
    _multiply_in_front(module, caller, graph, instruction, loop, products, context.threads)
    return _body(module, loop, len(instruction.shape.tuple_shapes), products, context.threads), caller


# --- which products ---------------------------------------------------------------------------------


def _chosen(instruction: InstructionProto, loop: CountedLoop) -> list[InputProduct]:
    """The products whose motion reads and writes fewer bytes, within a limit of memory."""
    invariant = frozenset(n for n in range(len(loop.next_state)) if loop.is_invariant(n))
    static = static_values(loop.body, invariant)
    limit = max(_FREE_BYTES, _bytes_of_stacks(instruction, loop.trips))
    chosen: list[InputProduct] = []
    for product in _products(loop, static):
        spent = _STACK_ACCESSES * product.results(loop.trips).bytes
        saved = (loop.trips - 1) * product.weights.shape.bytes
        size = sum(one.bytes(loop.trips) for one in (*chosen, product))
        if saved >= _LEAST_RATIO * spent and size <= limit:
            chosen.append(product)
    return chosen


def _bytes_of_stacks(instruction: InstructionProto, trips: int) -> int:
    """Bytes of the arrays of a loop's state that have a slice for each iteration."""
    shapes = [shape_of(shape) for shape in instruction.shape.tuple_shapes[:]]
    return sum(shape.bytes for shape in shapes if shape.dimensions[:1] == (trips,))


def _products(loop: CountedLoop, static: AbstractSet[Node]) -> Iterator[InputProduct]:
    for dot in loop.body.nodes:
        if dot.opcode != "dot" or dot.has_control_predecessors or dot.shape.element_type not in FLOAT_TYPES:
            continue
        for number in (0, 1):
            found = _product(loop, dot, number) if dot.operands[1 - number] in static else None
            if found is not None and found.weights.shape.bytes >= LEAST_BYTES:
                yield found
                break


def _product(loop: CountedLoop, dot: Node, number: int) -> InputProduct | None:
    """A dot as the product of an operand, a slice of a stacked array, with the other one: matrices or vectors."""
    dimensions = dot_dimensions(dot)
    side, other = dimensions[number], dimensions[1 - number]
    source, weights = dot.operands[number], dot.operands[1 - number]
    if side.batch or len(side.contracting) != 1 or len(side.free) > 1 or len(other.free) != 1:
        return None
    value, conversions = peel_node(source, PEEL_BITCASTS), list[str]()
    while value.opcode == "convert":
        conversions.insert(0, value.shape.element_type)
        value = peel_node(value.operands[0], PEEL_BITCASTS)
    access = loop.stacked_input(value)
    if access is None or value.has_control_predecessors or not FLOAT_TYPES.issuperset(conversions):
        return None
    # Of packed integers a shape made anew would be of twice the bytes.
    if value.shape.element_type not in BYTES_PER_ELEMENT or value.shape.packed_bits:
        return None
    result = dot
    if len(dot.users) == 1 and dot.users[0].opcode == "convert" and dot.users[0].shape.element_type in HALF_TYPES:
        result = dot.users[0]
    of_rows, of_columns = (tuple(one.in_result[n] for n in one.free) for one in (side, other))
    orders = (source.shape, (*side.free, *side.contracting)), (result.shape, (*of_rows, *of_columns))
    is_outermost = value.operands[0].shape.minor_to_major[-1] == access.dimension
    if not is_outermost or not all(_is_in_order(*order) for order in orders):
        return None
    depth = source.shape.dimensions[side.contracting[0]]
    sizes = source.shape.elements // depth, depth, dot.shape.elements * depth // source.shape.elements
    return InputProduct(dot, result, value, access, tuple(conversions), weights, other.contracting[0], *sizes)


def _is_in_order(shape: Shape, numbers: Sequence[int]) -> bool:
    """Whether these dimensions, as far as they have more than one element, are in this order in memory."""
    longer = [number for number in reversed(shape.minor_to_major) if shape.dimensions[number] > 1]
    return longer == [number for number in numbers if shape.dimensions[number] > 1]


# --- the edit ---------------------------------------------------------------------------------------


def _multiply_in_front(
    module: Module,
    caller: Editor,
    graph: FlatGraph,
    instruction: InstructionProto,
    loop: CountedLoop,
    products: Sequence[InputProduct],
    threads: int,
) -> None:
    """Multiply in front of the loop, whose state gets the results as further elements."""
    initial = caller.instructions[instruction.operand_ids[0]].operand_ids[:]
    matrices = {p.weights: initial[p.weights.proto.tuple_index] for p in products if is_parameter_element(p.weights)}
    computed = [*dict.fromkeys(p.weights for p in products if p.weights not in matrices)]
    if computed:
        clones = clone_into_caller(module, loop.body, computed, caller, instruction.id, initial, threads)
        matrices |= {node: clone.id for node, clone in zip(computed, clones, strict=True)}
    elements: dict[int, InstructionProto] = {}
    for product in products:
        builder = caller.before(instruction.id, product.dot.proto)
        rows = loop.trips * product.rows
        source_shape = row_major(product.slice.shape.element_type, (rows, product.depth))
        source = builder.make("bitcast", source_shape, initial[product.access.element])
        if product.conversions:
            source = _converted(caller, builder, source, product.conversions, threads)
        dot = _dot(caller, builder, loop, product, source, caller.instructions[matrices[product.weights]])
        if product.result is not product.dot:
            dot = _converted(caller, builder, dot, (product.result.shape.element_type,), threads)
        results = builder.make("bitcast", product.results(loop.trips), dot.id, stem="input_products")
        elements[len(initial) + len(elements)] = results
    replace_elements(caller, instruction, 0, elements)
    updates = {
        identifier: written_operands(module, one)
        for identifier, one in caller.instructions.items()
        if identifier not in caller.created and writes_in_place(module, one)
    }
    resolve_hazards(caller, BufferAliasing(module).pairs(graph.computation), updates)


def _dot(
    caller: Editor,
    builder: InstructionBuilder,
    loop: CountedLoop,
    product: InputProduct,
    source: InstructionProto,
    weights: InstructionProto,
) -> InstructionProto:
    """The product over all iterations, computed by the same library as one iteration's."""

    def made(builder: InstructionBuilder, left: int, right: int) -> InstructionProto:
        shape = row_major(product.dot.shape.element_type, (loop.trips * product.rows, product.columns))
        dot = builder.make("dot", shape, left, right)
        dot.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
        dot.dot_dimension_numbers.rhs_contracting_dimensions.append(product.contracting)
        dot.precision_config.CopyFrom(product.dot.proto.precision_config)
        return dot

    producer = loop.body.instruction_of[product.dot.producers[0]]
    if producer.opcode != "fusion" or producer.fusion_kind != "kCustom":
        return made(builder, source.id, weights.id)
    inner = InstructionBuilder.of_new_computation(caller.module, "input_product_computation", caller.computation)
    left, right = (inner.parameter(number, operand.shape).id for number, operand in enumerate((source, weights)))
    root = made(inner, left, right)
    caller.computations.append(inner.finished(root.id))
    operands, config = (source.id, weights.id), producer.backend_config
    return builder.fusion(inner.computation, operands, root.shape, kind="kCustom", config=config, stem="input_product")


def _converted(
    caller: Editor, builder: InstructionBuilder, value: InstructionProto, element_types: Sequence[str], threads: int
) -> InstructionProto:
    """A fusion that converts an array to these element types, one after the other."""
    inner = InstructionBuilder.of_new_computation(caller.module, "converted", caller.computation)
    shape = shape_of(value.shape)
    root = inner.parameter(0, shape)
    for element_type in element_types:
        shape = replace(shape, element_type=element_type)
        root = inner.make("convert", shape, root.id)
    caller.computations.append(inner.finished(root.id))
    config = loop_backend_config(shape, threads)
    return builder.fusion(inner.computation, (value.id,), shape, config=config, stem="converted")


def _body(module: Module, loop: CountedLoop, first: int, products: Sequence[InputProduct], threads: int) -> Editor:
    """The loop's body, which reads a slice of each product's results.

    Args:
        first: number of the first element of the state that is a product's results.

    Raises:
        RewriteUnsupported: an instruction has a control dependency on a product.
    """
    covered = frozenset[Node]().union(*(product.covered for product in products))
    results = [product.result for product in products]
    rewriter = ComputationRewriter(module, loop.body, threads, covered=covered, results=results)
    editor = rewriter.editor
    (parameter,) = editor.parameters()

    def emit() -> int:
        added: list[int] = []
        for number, product in enumerate(products, first):
            near, shape = rewriter.near(product.result), product.results(loop.trips)
            stack = near.get_tuple_element(parameter.id, number, shape, "input_products")
            inner = InstructionBuilder.of_new_computation(module, "input_product_computation", editor.computation)
            array = inner.parameter(0, shape)
            index, operands = clone_index(rewriter, inner, product.index, 1)
            zero = inner.constant(product.index.shape, index_literal(product.index.shape.element_type, 0)).id
            others = [zero] * len(product.result.shape.dimensions)
            size = replace(shape, dimensions=(1, *product.result.shape.dimensions))
            row = inner.make("dynamic-slice", size, array.id, index, *others)
            row.dynamic_slice_sizes[:] = size.dimensions
            root = inner.make("bitcast", product.result.shape, row.id)
            editor.computations.append(inner.finished(root.id))
            near.fusion(
                inner.computation, (stack.id, *operands), product.result.shape, stem="input_product",
                identifier=rewriter.identifier(product.result),
            )  # fmt: skip
            added.append(stack.id)
        operands = [rewriter.identifier(loop.body.value_of[o], o) for o in editor.root.operand_ids[:]]
        return editor.after(editor.root_id).tuple([*operands, *added], (), "state").id

    return rewriter.rewrite(emit)
