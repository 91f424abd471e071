"""Attention matches: two products with a softmax between them, as one kernel call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.attention.steps import ScoreStep, attributes_of
from hlo_dispatch.match.match_without_epilogue import MatchWithoutEpilogue
from hlo_dispatch.match.protocol import Work
from hlo_dispatch.pattern.table import Attention, Numerics

ROLES = ("query", "key", "value")


@dataclass(frozen=True, eq=False)
class AttentionMatch(MatchWithoutEpilogue):
    """softmax(steps(q·kᵀ))·v, ready to become one kernel call."""

    entry: Attention
    node: Node
    """The softmax's exponential: the products are anchors of their own where this is left to XLA."""
    sources: tuple[View, View, View]
    """Queries (batch…, M, D), keys (batch…, N, D), values (batch…, N, E)."""
    steps: tuple[ScoreStep, ...]
    """Operands as (batch…, M, N)."""
    destination: View
    """(batch…, M, E), in the node that the call produces."""
    covered: tuple[Node, ...]

    family: ClassVar[str] = "attention"
    has_planned_scratch: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def kernel(self) -> str:
        return self.entry.kernel

    @property
    def kernels(self) -> tuple[str]:
        return (self.entry.kernel,)

    @property
    def scratch_bytes(self) -> None:
        """None: the table's entry declares no scratch."""

    @property
    def precedence(self) -> int:
        return len(self.covered)

    @property
    def scores(self) -> int:
        """The number of scores, which stock XLA materializes."""
        queries, keys = self.sources[0].dimensions, self.sources[1].dimensions
        return math.prod(size for size, _ in queries[:-1]) * keys[-2][0]

    @property
    def work(self) -> Work:
        heads = self.sources[0].dimensions[-1][0] + self.sources[2].dimensions[-1][0]
        moved = sum(node.shape.bytes for node in (*self.reads, self.output))
        return Work(self.scores * heads, moved)

    @property
    def operands(self) -> tuple[View, ...]:
        """Queries, keys, values, then the operand of each step."""
        read = (step.view for step in self.steps if step.kind in ("add", "select"))
        return (*self.sources, *(view for view in read if view is not None))

    @property
    def reads(self) -> tuple[Node, ...]:
        return tuple(view.node for view in self.operands)

    @property
    def output(self) -> Node:
        return self.destination.node

    @property
    def results(self) -> tuple[Node, ...]:
        return (self.output,)

    @property
    def result_shapes(self) -> tuple[Shape]:
        return (self.output.shape,)

    @property
    def formula(self) -> str:
        text = "q·kᵀ"
        for step in self.steps:
            text = step.formula.replace("{}", f"({text})" if " + " in text and step.kind == "scale" else text)
        return f"softmax({text})·v"

    def numerics(self) -> Numerics:
        """The table's tolerance for the coarsest type among operands and result."""
        kinds = {self.output.shape.element_type, *(view.element_type for view in self.sources)}
        return max((self.entry.numerics[kind] for kind in kinds), key=lambda numerics: numerics.tolerance)

    def attributes(self) -> dict[str, Any]:
        """The kernel call's attributes."""
        attributes: dict[str, Any] = {}
        for role, view in zip(ROLES, self.sources, strict=True):
            attributes |= {f"{role}_{name}": value for name, value in _described(view).items()}
        attributes |= {f"dst_{name}": value for name, value in _described(self.destination).items()}
        for number, step in enumerate(self.steps):
            described = {} if step.view is None else _described(step.view)
            attributes[f"score_{number}"] = attributes_of(step, described)
        return attributes


def _described(view: View) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": view.element_type,
        "dims": view.sizes,
        "strides": view.strides,
    }
    elements = view.node.shape.elements
    if view.offset or elements != 1 + sum((size - 1) * stride for size, stride in view.dimensions):
        found |= {"offset": view.offset, "elements": elements}
    return found
