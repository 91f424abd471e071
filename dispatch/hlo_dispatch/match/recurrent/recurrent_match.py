"""Recurrent matches: a loop over the steps of a recurrent layer, as one kernel call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, View
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.described_view import described
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.recurrent.cell import Cell
from hlo_dispatch.pattern.table import Numerics, Recurrent


@dataclass(frozen=True)
class RecurrentCall:
    """A recurrent layer in the kernel's terms."""

    cell: Cell
    is_reversed: bool
    source: View
    """(steps, rows, inputs), or pre-activations: (steps, rows, gates · units)."""
    weights: View
    """Of the state: (units, gates · units)."""
    input_weights: View | None
    """(inputs, gates · units); None: the source consists of pre-activations."""
    candidate_weights: View | None
    """Of a GRU that resets first: those of its second product, (units, units)."""
    hidden_blocks: tuple[int, ...]
    """For each gate with such a product, which block of columns of the weights it has."""
    input_blocks: tuple[int, ...]
    bias: View | None
    states: tuple[View, ...]
    """The initial state and, of an LSTM, cell state: (rows, units)."""
    destination: tuple[Dimension, ...]
    """(steps, rows, units) over the buffer of the first result."""
    destination_type: str

    @property
    def operands(self) -> dict[str, View]:
        """By their roles, in order."""
        optional = {"input_weights": self.input_weights, "candidate_weights": self.candidate_weights, "bias": self.bias}
        return {
            "src": self.source,
            "weights": self.weights,
            **{role: view for role, view in optional.items() if view is not None},
            **dict(zip(("state", "cell_state"), self.states, strict=False)),
        }

    @property
    def multiply_adds(self) -> int:
        steps, rows = self.source.sizes[:2]
        matrices = (self.weights, self.input_weights, self.candidate_weights)
        return steps * rows * sum(math.prod(view.sizes) for view in matrices if view is not None)

    def attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {"cell": self.cell.kind, "reversed": int(self.is_reversed)}
        attributes |= {"hidden_blocks": list(self.hidden_blocks), "input_blocks": list(self.input_blocks)}
        for role, view in self.operands.items():
            attributes |= {f"{role}_{name}": value for name, value in described(view).items()}
        attributes["dst_type"] = self.destination_type
        attributes["dst_dims"] = [size for size, _ in self.destination]
        attributes["dst_strides"] = [stride for _, stride in self.destination]
        return attributes


def match_of_recurrent(
    entry: Recurrent,
    loop: Node,
    call: RecurrentCall,
    results: Sequence[Node | None],
    shapes: Sequence[Shape],
    covered: Sequence[Node],
    extra_reads: Sequence[Node],
) -> Match:
    """The match of a loop.

    Args:
        results: all states, the last state and, of an LSTM, the last cell state; None where one is dead.
        extra_reads: the values from which operands are computed that the module does not have yet.
    """

    def numerics() -> Numerics:
        """For the coarsest type among operands and results."""
        kinds = {view.element_type for view in call.operands.values()} | {call.destination_type}
        return max((entry.numerics[kind] for kind in kinds), key=lambda numerics: numerics.tolerance)

    return Match(
        entry=entry,
        node=loop,
        kernels=(entry.kernel,),
        kernel=entry.kernel,
        operands=call.operands,
        results=tuple(results),
        result_shapes=tuple(shapes),
        covered=tuple(covered),
        formula=call.cell.formula,
        attributes=call.attributes,
        numerics=numerics,
        multiply_adds=call.multiply_adds,
        extra_reads=tuple(extra_reads),
    )
