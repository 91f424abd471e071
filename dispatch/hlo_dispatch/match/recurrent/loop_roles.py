"""Roles of what a loop carries, for one that may be a recurrent layer: its states and its stacked output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hlo_dispatch.analysis.counted_loop import CountedLoop, StackedOutput
from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, View, rebase_dimensions
from hlo_dispatch.ir.shape import FLOAT_TYPES
from hlo_dispatch.match.recurrent.not_recurrent import refuse
from hlo_dispatch.match.recurrent.products import Product


@dataclass(frozen=True)
class LoopRoles:
    """A loop whose body multiplies its state with weights."""

    node: Node
    loop: CountedLoop
    products: Mapping[Node, Sequence[Product]]
    """All products of the body."""
    carried: tuple[int, ...]
    """The elements that are states, the one that products read first."""
    output: StackedOutput | None
    rows: Dimension
    """(size, stride) over a state's buffer."""
    units: Dimension

    @classmethod
    def of(cls, node: Node, loop: CountedLoop, products: Mapping[Node, Sequence[Product]], state: int) -> LoopRoles:
        """
        Raises:
            NotRecurrent: the loop carries something else.
        """
        initial = node.operands[0]
        if initial.opcode != "tuple" or initial.users != [node] or node.is_live_out:
            refuse("the loop's state is passed on as a whole", node)
        replaced = (node, initial, *initial.operands, *node.users)
        waiting = next((one for one in replaced if one.has_control_predecessors), None)
        if waiting is not None:
            refuse("the instruction has control predecessors", waiting, "control-dependency")
        read = (product for both in products.values() for product in both)
        rows, units = next(product.data for product in read if product.state is not None).dimensions
        carried, output = _carried(node, loop, state)
        shape = loop.next_state[state].shape
        if shape.element_type not in FLOAT_TYPES or rows[0] * units[0] != shape.elements:
            refuse(f"the state {shape} is no rows of units", node)
        return cls(node, loop, products, carried, output, rows, units)

    @property
    def initial(self) -> tuple[Node, ...]:
        """The values in front of the loop."""
        return self.node.operands[0].operands

    @property
    def state(self) -> Node:
        """The next state."""
        return self.loop.next_state[self.carried[0]]

    def product(self, dot: Node, *, of_input: bool) -> Product | None:
        """The dot as a product of the input, or of the state and what is computed of it; None: it is none."""
        found = self.products.get(dot, ())
        return next((product for product in found if (product.access is not None) == of_input), None)

    @property
    def proposals(self) -> list[View]:
        """Computed values that products read."""
        read = (product for both in self.products.values() for product in both)
        return [product.data for product in read if product.state is None and product.access is None]

    def written_dimensions(self, output: StackedOutput) -> tuple[Dimension, ...] | None:
        """The state's dimensions over the buffer of one slice of a stacked output; None: it has others."""
        state, written = self.state.shape, output.written.shape
        others = [d for n, d in enumerate(written.strided_dimensions) if n != output.access.dimension and d[0] > 1]
        if [size for size in state.dimensions if size > 1] != [size for size, _ in others]:
            return None
        strides = iter([stride for _, stride in others])
        moved = [next(strides) if size > 1 else 1 for size in state.dimensions]
        return rebase_dimensions((self.rows, self.units), state, moved)


def _carried(node: Node, loop: CountedLoop, state: int) -> tuple[tuple[int, ...], StackedOutput | None]:
    carried, outputs = [state], list[StackedOutput]()
    for element in range(len(loop.next_state)):
        if element in (state, loop.induction_element) or loop.is_invariant(element):
            continue
        output = loop.stacked_output(element)
        if output is None:
            carried.append(element)
        else:
            outputs.append(output)
    shape = loop.next_state[state].shape
    others = (replace(loop.next_state[e].shape, element_type=shape.element_type) for e in carried)
    if len(carried) > 2 or any(other != shape for other in others):
        refuse(f"the loop carries %{loop.next_state[carried[-1]].name} beside a cell's state", node)
    if len(outputs) > 1:
        names = ", ".join(f"%{output.written.name}" for output in outputs[:3])
        refuse(f"the loop keeps {len(outputs)} values of every step, not the state alone: {names}", node)
    return tuple(carried), outputs[0] if outputs else None
