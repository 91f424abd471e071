"""Elementwise regions: connected elementwise instructions as a function of one variable, and their evaluation in
float64.

The region grows from a value through elementwise instructions whose other operands are scalar constants. An *exit* is
an instruction that post-dominates the region so far: up to there the region has one input and one output, and is
y = f(x) whatever its spelling. Evaluation omits the roundings to bf16 that XLA inserts between the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING_AND_SHAPES
from hlo_dispatch.analysis.scalar_constants import Array, apply, scalar_constant
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.ir.shape import FLOAT_TYPES
from hlo_dispatch.process.native import native

REGION_TYPES = FLOAT_TYPES | {"pred"}
_REGION_OPCODES = ELEMENTWISE | PEEL_ROUNDING_AND_SHAPES
_MAX_REGION = 256  # XLA spells one erfc in 110 instructions
_MAX_EXITS = 12


class ElementwiseRegion(NamedTuple):
    """A region of elementwise instructions that all depend on `entry`, in topological order, with its exits."""

    entry: Node
    nodes: tuple[Node, ...]
    exits: tuple[int, ...]
    """Positions in `nodes` of the exits, nearest first."""
    constants: tuple[float, ...]
    """Every scalar constant the region uses."""

    def structure(self) -> tuple[object, ...]:
        """A name-free key of the computed function: regions with equal keys are the same function."""
        return native().region_structure(self.entry, self.nodes, scalar_constant)

    def evaluate(self, x: Array) -> list[Array]:
        """Evaluates f(x) at each exit, in float64; `x` is float64 of any length."""
        values: dict[Node, Array] = {self.entry: x}
        with np.errstate(all="ignore"):
            for node in self.nodes:
                arguments = [values[o] if o in values else scalar_constant(o) for o in node.operands]
                values[node] = apply(node, arguments)
        return [np.asarray(values[self.nodes[position]], dtype=np.float64) for position in self.exits]


def grow_region(
    entry: Node, is_owned: Callable[[Node], bool], is_materialized: Callable[[Node], bool]
) -> ElementwiseRegion:
    """Grows the elementwise region of one-variable functions that starts at `entry`'s users.

    Args:
        entry: the variable x.
        is_owned: whether another match owns an instruction; the region ends in front of it.
        is_materialized: whether a value must stay in memory; the region may end in one but not continue past it.
    """
    if len(entry.users) == 1 and not _may_begin(entry, entry.users[0]):
        return ElementwiseRegion(entry, (), (), ())
    nodes, exits, constants = native().grow_region(
        entry,
        is_owned,
        is_materialized,
        scalar_constant,
        _REGION_OPCODES,
        REGION_TYPES,
        FLOAT_TYPES,
        _MAX_REGION,
        _MAX_EXITS,
    )
    return ElementwiseRegion(entry, nodes, exits, tuple(dict.fromkeys(constants)))


def _may_begin(entry: Node, user: Node) -> bool:
    """Whether a region can have this user: most values are read by something else, which takes no search."""
    if user.opcode not in _REGION_OPCODES:
        return False
    for operand in user.operands:
        if operand is not entry and (operand.scalar is None or scalar_constant(operand) is None):
            return False
    return True
