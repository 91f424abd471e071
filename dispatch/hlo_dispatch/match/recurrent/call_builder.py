"""Builder of a recurrent call: finds its operands in front of the loop, by where each gate's elements lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_dispatch.analysis.counted_loop import StackedAccess, StackedOutput, peel_inserted_copies
from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_SLICES
from hlo_dispatch.analysis.strided_view import Dimension, View, element_indices, peeled_views, rebase_dimensions
from hlo_dispatch.ir.shape import HALF_TYPES, Shape, row_major
from hlo_dispatch.match.recurrent.cell import Cell
from hlo_dispatch.match.recurrent.loop_roles import LoopRoles
from hlo_dispatch.match.recurrent.not_recurrent import refuse
from hlo_dispatch.match.recurrent.operands import OperandBuilder
from hlo_dispatch.match.recurrent.products import Product, is_invariant, narrowed
from hlo_dispatch.match.recurrent.recurrent_match import RecurrentCall


@dataclass(frozen=True)
class Block:
    """A gate's elements in an array: `first + row · row_stride + unit · unit_stride` in its buffer."""

    node: Node
    first: int
    row_stride: int
    unit_stride: int


class CallBuilder:
    """Builder of the call that replaces one loop."""

    def __init__(self, roles: LoopRoles) -> None:
        self._roles, self.operands = roles, OperandBuilder(roles.node)

    def build(
        self,
        cell: Cell,
        hidden: Sequence[Block],
        inputs: Sequence[Block],
        biases: Sequence[Sequence[Block]],
    ) -> RecurrentCall:
        """The call.

        Args:
            hidden: for each gate its product of the state.
            inputs: for each gate its product of the input, or pre-activation.
            biases: for each of the cell's sums what else it adds.

        Raises:
            NotRecurrent: the kernel cannot read an operand.
        """
        roles = self._roles
        count = 2 if cell.resets_first else len(hidden)
        products = self._products(hidden, of_input=False)
        views = [self._weights_of(product) for product in products]
        if all(product.is_half for product in products):
            views = [self.operands.narrowed(view) for view in views]
        weights, hidden_blocks = self._weights(hidden[:count], products[:count], views[:count])
        candidate_weights = self._weights(hidden[count:], products[count:], views[count:])[0] if count == 2 else None
        if inputs[0].node in roles.products:
            products = self._products(inputs, of_input=True)
            source, access, views = self._input(products)
            input_weights, input_blocks = self._weights(inputs, products, views)
        else:
            input_weights = None
            source, access, input_blocks = self._pre_activations(inputs)
        if roles.output is not None and roles.output.access.is_reversed != access.is_reversed:
            refuse("inputs and outputs are in opposite order", roles.node)
        vectors = [[self._bias(block) for block in gate] for gate in biases]
        bias = self.operands.bias(vectors, cell.offsets, roles.units[0])
        states = (View(peel_inserted_copies(roles.initial[e]), (roles.rows, roles.units)) for e in roles.carried)
        destination, kind = self._destination(roles.output)
        return RecurrentCall(
            cell, access.is_reversed, source, weights, input_weights, candidate_weights, hidden_blocks, input_blocks,
            bias, tuple(states), destination, kind,
        )  # fmt: skip

    def _before(self, node: Node) -> Node:
        """The value in front of the loop that one of the body has in every step."""
        if node.opcode == "constant":
            return self.operands.constant(node)
        element = self._roles.loop.element_of(node)
        assert element is not None, "what no step changes is an element, or a constant"
        return peel_inserted_copies(self._roles.initial[element])

    def _weights_of(self, product: Product) -> View:
        view = product.weights._replace(node=self._before(product.weights.node))
        return peeled_views(view, PEEL_SLICES)[-1]

    def _products(self, blocks: Sequence[Block], *, of_input: bool) -> list[Product]:
        found = [self._roles.product(block.node, of_input=of_input) for block in blocks]
        products = [product for product in found if product is not None]
        if len(products) != len(blocks):
            refuse("some gates have products of the input, and some have not", self._roles.node)
        return products

    def _weights(
        self, blocks: Sequence[Block], products: Sequence[Product], views: Sequence[View]
    ) -> tuple[View, tuple[int, ...]]:
        """The weights of all gates, and the block of columns that each gate has.

        Args:
            views: the weights of each gate's product.
        """
        units = self._roles.units[0]
        columns = [self._column(block, product) for block, product in zip(blocks, products, strict=True)]
        if len({block.node for block in blocks}) == 1:
            if sorted(columns) != [n * units for n in range(len(blocks))]:
                refuse("the gates' columns do not lie side by side", self._roles.node)
            if products[0].columns[0] != len(blocks) * units:
                refuse("a product has more columns than the cell has gates", self._roles.node)
            return views[0], tuple(column // units for column in columns)
        if any(columns) or any(product.columns[0] != units for product in products):
            refuse("the gates are computed by products of different sizes", self._roles.node)
        order = sorted(range(len(views)), key=lambda number: views[number].offset)
        joined = self.operands.matrix([views[number] for number in order])
        if joined is None:
            refuse("the weights of the gates do not lie alike in memory", self._roles.node)
        return joined, tuple(order.index(number) for number in range(len(views)))

    def _column(self, block: Block, product: Product) -> int:
        """The first column that a gate has of a product."""
        (rows, row_stride), (_, column_stride) = product.rows, product.columns
        is_in_order = rows == 1 or block.row_stride == row_stride
        is_column_by_column = self._roles.units[0] == 1 or block.unit_stride == column_stride
        if not is_in_order or not is_column_by_column or rows != self._roles.rows[0]:
            refuse(f"%{block.node.name} is not read column by column", block.node)
        return block.first // column_stride

    def _input(self, products: Sequence[Product]) -> tuple[View, StackedAccess, list[View]]:
        """The stacked inputs that the products read, (steps, rows, inputs), and their weights."""
        first, access = products[0], products[0].access
        if any(product.data != first.data or product.access != access for product in products) or access is None:
            refuse("the gates have different inputs", self._roles.node)
        source = self._stacked(access, first.data.node.shape, first.data.dimensions, first.data.offset)
        views = [self._weights_of(product) for product in products]
        narrow = [self.operands.narrowed(view) for view in (source, *views)]
        if len({view.element_type for view in narrow}) == 1:
            return narrow[0], access, narrow[1:]
        if first.is_half and source.element_type not in HALF_TYPES:
            refuse(f"%{first.dot.name} rounds its operands in each step", first.dot)
        return source, access, views

    def _pre_activations(self, blocks: Sequence[Block]) -> tuple[View, StackedAccess, tuple[int, ...]]:
        """The stacked pre-activations, (steps, rows, gates · units), and each gate's block."""
        first, units = blocks[0], self._roles.units[0]
        access = self._roles.loop.stacked_input(first.node)
        lowest = min(block.first for block in blocks)
        places = [(block.first - lowest) // units for block in blocks]
        alike = all((b.node, b.row_stride) == (first.node, first.row_stride) for b in blocks)
        expected = [(1, lowest + place * units) for place in places]
        is_dense = [(block.unit_stride, block.first) for block in blocks] == expected
        if access is None or not alike or not is_dense or sorted(places) != list(range(len(blocks))):
            refuse(f"the gates in %{first.node.name} do not lie side by side", first.node)
        dimensions = ((self._roles.rows[0], first.row_stride or 1), (len(blocks) * units, 1))
        return narrowed(self._stacked(access, first.node.shape, dimensions, lowest)), access, tuple(places)

    def _stacked(
        self,
        access: StackedAccess,
        shape: Shape,
        dimensions: tuple[Dimension, ...],
        offset: int,
    ) -> View:
        """All slices of a stacked array, of which `dimensions` over the buffer of one are read."""
        stack = peel_inserted_copies(self._roles.initial[access.element])
        moved = rebase_dimensions(dimensions, shape, stack.shape.strides)
        if moved is None:
            refuse(f"the slices of %{stack.name} do not lie at equal distances", stack)
        first = element_indices(offset, shape)
        start = sum(index * stride for index, stride in zip(first, stack.shape.strides, strict=True))
        steps = stack.shape.strided_dimensions[access.dimension]
        return View(stack, (steps, *moved), start)

    def _bias(self, block: Block) -> tuple[Node, int]:
        if not is_invariant(self._roles.loop, block.node) or block.unit_stride != 1 or block.row_stride:
            refuse(f"%{block.node.name} is no bias", block.node)
        return self._before(block.node), block.first

    def _destination(self, output: StackedOutput | None) -> tuple[tuple[Dimension, ...], str]:
        """The dimensions of the stacked output over its buffer, and its element type."""
        state = self._roles.state.shape
        if output is None:
            shape = row_major(state.element_type, (self._roles.loop.trips, self._roles.rows[0], self._roles.units[0]))
            return shape.strided_dimensions, state.element_type
        access, stack = output.access, self._roles.initial[output.access.element].shape
        kept = self._roles.written_dimensions(output)
        moved = None if kept is None else rebase_dimensions(kept, output.written.shape, stack.strides)
        if moved is None:
            refuse("the states of every step do not lie at equal distances", self._roles.node)
        return (stack.strided_dimensions[access.dimension], *moved), stack.element_type
