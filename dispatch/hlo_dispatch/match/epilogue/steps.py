"""Epilogue data types: post-ops, the steps that they come from, and the chain of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import is_widening
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import Dimension, View


class PostOp(NamedTuple):
    """One operation that the primitive applies to its result."""

    kind: str
    """"eltwise" or "binary"."""
    algorithm: str
    """The kernel library's name for it."""
    formula: str
    """Template with `{}` for the value so far and `{operand}` for the other operand."""
    alpha: float = 0.0
    beta: float = 0.0
    operand: View | None = None
    """A binary step's other operand, in the dimensions of the primitive's result (size 1: it repeats)."""


class Step(NamedTuple):
    """One step of an epilogue chain: instructions, and the post-ops (possibly none) that compute them."""

    nodes: tuple[Node, ...]
    post_ops: tuple[PostOp, ...]
    destination: tuple[Dimension, ...]
    """The primitive's result dimensions over the buffer of the step's result."""
    attributes: Mapping[str, int] = MappingProxyType({})
    """The kernel's attributes that are others from this step on."""

    @property
    def result(self) -> Node:
        return self.nodes[-1]

    @property
    def leaves_half_values(self) -> bool:
        """Whether the step's result is f32 but each of its elements is a half precision value.

        A kernel that did not round in front of it would store other values: x == max(x, 0), on which gradients of clips
        and maxima in half precision depend, would hold nowhere.
        """
        return is_half_valued(self.result)


@dataclass(frozen=True)
class Chain:
    """The epilogue chain of an anchor, and the reason where it ends."""

    steps: tuple[Step, ...]
    stopped_at: Node | None
    """The instruction at which it stopped; None: nothing could have followed."""
    why: str
    nearest: Callable[[], str] | None = field(default=None, hash=False, compare=False)
    """Set where a function of one variable stopped it: says which activation came closest. Slow."""

    def explanation(self) -> str:
        """`why`, with the nearest miss where there is one; slow."""
        return self.why if self.nearest is None else f"{self.why}: {self.nearest()}"


def rounded_alike(steps: Sequence[Step], count: int) -> int:
    """The number of the first `count` steps with which a call's result has the rounding of stock's."""
    while count and steps[count - 1].leaves_half_values:
        count -= 1
    return count


# Opcodes that return one of their operands' values, or its negative.
_SELECTING_OPCODES = frozenset("abs bitcast clamp copy maximum minimum negate select transpose".split())
_MAX_DEPTH = 16


def is_half_valued(node: Node, farthest: int = _MAX_DEPTH) -> bool:
    """Whether a value of f32 holds half precision values only, except for its constants."""
    if is_widening(node):
        return True
    if node.opcode not in _SELECTING_OPCODES or node.shape.element_type != "f32" or not farthest:
        return False
    operands = node.operands[1:] if node.opcode == "select" else node.operands
    # XLA writes a half precision program's constants as it would round them.
    values = [operand for operand in operands if scalar_constant(operand) is None]
    return bool(values) and all(is_half_valued(value, farthest - 1) for value in values)
