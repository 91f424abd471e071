"""Recurrent layer finder: matches counted loops whose body computes a recurrent cell.

Loops whose state no product reads are none of its concern. Of the others, everything that the body computes must be of
the cell; what is not (a mask, lengths, values kept for a gradient) is a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from hlo_dispatch.analysis.counted_loop import CountedLoop, loop_at
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.analysis.peeling import PEEL_COPIES, peel_instruction
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.match.elementwise_points import (
    ElementwisePoints,
    NotElementwise,
    Offsets,
    SourceElements,
)
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.recurrent.call_builder import Block, CallBuilder
from hlo_dispatch.match.recurrent.cell import Cell, Signature, recognise_cell
from hlo_dispatch.match.recurrent.loop_roles import LoopRoles
from hlo_dispatch.match.recurrent.masks import find_mask
from hlo_dispatch.match.recurrent.not_recurrent import NotRecurrent, refuse
from hlo_dispatch.match.recurrent.products import is_invariant, read_products
from hlo_dispatch.match.recurrent.recurrent_match import RecurrentCall, match_of_recurrent
from hlo_dispatch.pattern import Table
from hlo_dispatch.pattern.table import Recurrent

_NEEDED = frozenset(("dot", "dynamic-slice"))
_SAMPLES = 48
_SEED = 3


class RecurrentFinder:
    """Finder of one table's recurrent layers in flat graphs; thread-safe."""

    def __init__(self, table: Table) -> None:
        self._entries = table.recurrents

    def find(self, graph: FlatGraph) -> Iterator[tuple[Node, Match | Refusal]]:
        """Every recurrent layer of `graph` in program order, by its loop, or the refusal for it."""
        module = graph.module
        for node in graph.nodes if self._entries else ():
            loop = loop_at(module, node)
            if loop is not None and _may_be_recurrent(module, loop):
                with flat_graphs(module) as graph_of:
                    counted = CountedLoop.of(loop, graph_of(loop.called_computation_ids[0]))
                    found = None if counted is None else _read(self._entries[0], node, counted)
                if found is not None:
                    yield node, found


def _may_be_recurrent(module: Module, loop: InstructionProto) -> bool:
    """Whether the loop's body has products, and slices, as of the input of each step."""
    if not module.opcodes >= _NEEDED:
        return False
    missing = set(_NEEDED)
    body = loop.called_computation_ids[0]
    pending = [body]
    while pending and missing:
        identifier = pending.pop()
        opcodes = module.opcodes_of(identifier)
        missing -= opcodes
        if "fusion" in opcodes:
            for instruction in module.computations[identifier].instructions[:]:
                if instruction.opcode == "fusion":
                    pending += instruction.called_computation_ids[:]
    return not missing and _may_have_inputs(module.computations[body], loop)


def _may_have_inputs(body: ComputationProto, loop: InstructionProto) -> bool:
    """Whether the body hands on an array that has a slice for each step."""
    trips = trip_count(loop)
    stacks = [n for n, shape in enumerate(loop.shape.tuple_shapes[:]) if trips in shape.dimensions[:]]
    if trips is None or not stacks:
        return False
    by_id = {instruction.id: instruction for instruction in body.instructions[:]}
    root = by_id[body.root_id]
    if root.opcode != "tuple":
        return False
    for number in stacks:
        value = peel_instruction(by_id[root.operand_ids[number]], PEEL_COPIES, by_id)
        if value.opcode == "get-tuple-element" and value.tuple_index == number:
            return True
    return False


def _read(entry: Recurrent, node: Node, loop: CountedLoop) -> Match | Refusal | None:
    """None where no product reads a state, or the loop reads no sequence."""
    if all(loop.stacked_input(value) is None for value in loop.body.nodes):
        return None
    products = {dot: read_products(loop, dot) for dot in loop.body.nodes if dot.opcode == "dot"}
    states = {product.state for both in products.values() for product in both if product.state is not None}
    if not states:
        return None
    try:
        mask = find_mask(loop.body)
        if mask is not None:
            refuse(f"%{mask.name} masks steps; masks and variable lengths stay with XLA", mask)
        other = next((dot for dot, both in products.items() if not both), None)
        if other is not None:
            refuse(f"%{other.name} has no weights that all steps share", other)
        if len(states) > 1:
            refuse(f"products read {len(states)} states: a loop over several layers at once stays with XLA", node)
        return _RecurrentAttempt(entry, LoopRoles.of(node, loop, products, states.pop())).match()
    except NotRecurrent as error:
        return error.refusal


class _RecurrentAttempt:
    """One match attempt."""

    def __init__(self, entry: Recurrent, roles: LoopRoles) -> None:
        self._entry, self._roles = entry, roles
        self._samples = _samples(roles.rows[0], roles.units[0])

    def match(self) -> Match:
        """The match.

        Raises:
            NotRecurrent: it is something else.
        """
        points = self._points()
        blocks = {source: self._block(source) for source in points.sources}
        cell = self._cell(points, blocks)
        kinds = (self._is_hidden, self._is_input)
        hidden, inputs = ([self._only(gate, kind) for gate in cell.gates] for kind in kinds)
        if cell.resets_behind:  # the last gate's products are in two sums
            hidden, inputs = [*hidden[:2], hidden[3]], inputs[:3]
        found = [[blocks[source] for source in sources if source is not None] for sources in (hidden, inputs)]
        if any(len(sources) < len(hidden) for sources in found):
            refuse("a gate has no input, or several", self._roles.node)
        biases = [[blocks[s] for s in gate if not any(kind(s) for kind in kinds)] for gate in cell.gates]
        builder = CallBuilder(self._roles)
        call = builder.build(cell, found[0], found[1], biases)
        return self._match(call, builder.operands.reads)

    # --- what the body computes -------------------------------------------------------------------

    def _points(self) -> ElementwisePoints:
        roles, (rows, units) = self._roles, self._samples
        offsets = rows * roles.rows[1] + units * roles.units[1]
        results = [(roles.loop.next_state[element], offsets) for element in roles.carried]
        if roles.output is not None:
            kept = roles.written_dimensions(roles.output)
            if kept is None:
                refuse(f"the loop keeps %{roles.output.written.name} of every step, not the state", roles.node)
            results.append((roles.output.written, rows * kept[0][1] + units * kept[1][1]))
        for data in roles.proposals:
            if data.sizes != [roles.rows[0], roles.units[0]]:
                refuse(f"a product reads %{data.node.name}, which is no row of as many units as the state", roles.node)
            results.append((data.node, rows * data.strides[0] + units * data.strides[1]))
        try:
            return ElementwisePoints(results, self._is_source)
        except NotElementwise as error:
            refuse(f"%{error.node.name} ({error.node.opcode}) is no part of a recurrent cell", error.node)

    def _cell(self, points: ElementwisePoints, blocks: Mapping[SourceElements, Block]) -> Cell:
        roles, loop = self._roles, self._roles.loop
        if any(loop.element_of(source.node) == loop.induction_element for source in blocks):
            refuse("what the body computes depends on the step's number", roles.node)
        states = [self._state_source(blocks, element) for element in (*roles.carried, None)][:2]
        hidden = tuple(source for source in blocks if self._is_hidden(source))
        signature = Signature(hidden, states[0], states[1], len(roles.carried), len(roles.proposals))
        cell = recognise_cell(points, signature, len(self._samples[0]))
        if cell is None:
            sentence = "what the body computes from products and state is no LSTM, GRU or plain recurrent cell"
            refuse(sentence, roles.node)
        return cell

    def _is_source(self, node: Node) -> bool:
        loop = self._roles.loop
        is_known = node in self._roles.products or is_invariant(loop, node)
        return is_known or loop.element_of(node) is not None or loop.stacked_input(node) is not None

    def _is_hidden(self, source: SourceElements) -> bool:
        return self._roles.product(source.node, of_input=False) is not None

    def _is_input(self, source: SourceElements) -> bool:
        is_product = self._roles.product(source.node, of_input=True) is not None
        return is_product or source.node.opcode == "dynamic-slice"

    def _only(self, gate: Sequence[SourceElements], is_kind: Callable[[SourceElements], bool]) -> SourceElements | None:
        found = [source for source in gate if is_kind(source)]
        return found[0] if len(found) == 1 else None

    def _block(self, source: SourceElements) -> Block:
        """Where the elements of the source lie."""
        rows, units = self._samples
        offsets = np.array(source.offsets)
        first = int(offsets[0])
        row = int(offsets[1]) - first if self._roles.rows[0] > 1 else 0
        unit = int(offsets[2]) - first if self._roles.units[0] > 1 else 1
        if not np.array_equal(offsets, first + rows * row + units * unit):
            refuse(f"the elements of %{source.node.name} are not read row by row", source.node)
        return Block(source.node, first, row, unit)

    def _state_source(self, blocks: Mapping[SourceElements, Block], element: int | None) -> SourceElements | None:
        """The state before, read at the element that is computed."""
        wanted = (self._roles.rows, self._roles.units)
        for source, block in blocks.items():
            if element is not None and self._roles.loop.element_of(source.node) == element:
                strides = (block.row_stride, block.unit_stride)
                if not block.first and all(s == w or n == 1 for s, (n, w) in zip(strides, wanted, strict=True)):
                    return source
        return None

    # --- the match --------------------------------------------------------------------------------

    def _match(self, call: RecurrentCall, extra_reads: Sequence[Node]) -> Match:
        roles, node = self._roles, self._roles.node
        parts = {user.proto.tuple_index: user for user in node.users}
        elements = [None if roles.output is None else roles.output.access.element, *roles.carried]
        unknown = next((part for element, part in parts.items() if element not in elements), None)
        if unknown is not None:
            refuse(f"%{unknown.name} is used after the loop", unknown)
        results = [None if element is None else parts.get(element) for element in elements]
        sizes = tuple(size for size, _ in call.destination)
        shapes = [
            row_major(call.destination_type, sizes) if element is None else roles.initial[element].shape
            for element in elements
        ]
        initial = node.operands[0]
        reads = {view.node for view in call.operands.values()} | set(extra_reads)
        dead = [n for n in roles.initial if n not in reads and n.users == [initial] and n.opcode != "parameter"]
        covered = {*dead, initial, node, *(result for result in results if result is not None)}
        ordered = sorted(covered, key=lambda n: n.index)
        return match_of_recurrent(self._entry, node, call, results, shapes, ordered, extra_reads)


def _samples(rows: int, units: int) -> tuple[Offsets, Offsets]:
    """Rows and units of sampled elements: the first, its neighbours, the last, and some between them."""
    random = np.random.default_rng(_SEED)
    fixed = [(0, 0), (min(1, rows - 1), 0), (0, min(1, units - 1)), (rows - 1, units - 1)]
    drawn = np.stack([random.integers(0, rows, _SAMPLES), random.integers(0, units, _SAMPLES)], axis=1)
    both = np.concatenate([np.array(fixed), drawn]).astype(np.int64)
    return both[:, 0], both[:, 1]
