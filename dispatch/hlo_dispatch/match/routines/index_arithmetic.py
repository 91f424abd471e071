"""Index arithmetic: what becomes of an index on its way to a gather or a scatter, told by sample indices.

Between its array and its use an index has constants added, is compared with constants, and one of two such values is
selected, as where it counts from the end, is clamped or is masked. As a function of the array's element that changes
only where the element is a sum of constants. All constants are near 0, near the dimension's size, or near its negative,
and few are added: so what it does with samples around the next multiples of the size is all that it does. Other
arithmetic, as of bits, of other types or with other constants, is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_SHAPES
from hlo_dispatch.analysis.scalar_constants import apply, scalar_constant
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.pattern.constraints import is_row_major

_MOST_OPS = 64
_MOST_ADDITIONS = 3
_FURTHEST = _MOST_ADDITIONS + 2
"""Multiples of the size, and steps from one, of the furthest samples: a comparison's constant less the added ones, and
both sides of that."""
_LEAST, _MOST = -(2**31), 2**31 - 1
_WITH_CONSTANTS = frozenset("add clamp maximum minimum subtract".split())
"""Opcodes that take one value besides constants."""
_OF_TRUTHS = frozenset("and not or xor".split())


def samples(size: int) -> Any:
    """Sample indices of a dimension, of every kind that index arithmetic tells apart: int64, ascending."""
    near = np.arange(-_FURTHEST, _FURTHEST + 1)
    around = near[:, None] * size + near
    found = np.unique(np.concatenate([around.ravel() + base for base in (_LEAST, 0, _MOST)]))
    return found[(found >= _LEAST) & (found <= _MOST)]


def peel_shapes(node: Node) -> Node:
    """The value whose elements, in the same order, another shape of it has."""
    while node.opcode in PEEL_SHAPES and node.operands and _keeps_order(node):
        node = node.operands[0]
    return node


def source_of(node: Node) -> Node | None:
    """The one array whose elements a value is computed from, each from its own; None: there are several."""
    found, pending, seen = set[Node](), [node], set[Node]()
    while pending:
        node = pending.pop()
        if node in seen or scalar_constant(node) is not None:
            continue
        seen.add(node)
        operands = _operands(node)
        if operands is None or (node.opcode in PEEL_SHAPES and _operands(peel_shapes(node)) is None):
            found.add(peel_shapes(node))
        else:
            pending += operands
        if len(seen) > _MOST_OPS:
            return None
    return found.pop() if len(found) == 1 else None


def evaluated(node: Node, source: Node, size: int) -> Any:
    """What a value is where its source has the samples; None: it cannot be told.

    Args:
        size: of the dimension that is indexed.
    """
    known, before = dict[Node, Any](), samples(size)
    constants = {multiple * size + step for multiple in (-1, 0, 1) for step in (-1, 0, 1)}

    def of(node: Node) -> Any:
        if node not in known:
            known[node] = _computed(node, source, before, constants, of)
        return known[node]

    value = of(node)
    additions = sum(node.opcode in ("add", "subtract") for node in known)
    return value if additions <= _MOST_ADDITIONS else None


def _keeps_order(node: Node) -> bool:
    """Whether a change of shape keeps the order of the elements; a bitcast keeps that in memory."""
    return node.opcode != "bitcast" or (is_row_major(node.shape) and is_row_major(node.operands[0].shape))


def _operands(node: Node) -> list[Node] | None:
    """The values of the same entry that a node is computed from; None: it is no such instruction."""
    if node.opcode in PEEL_SHAPES:
        is_same = node.operands[0].shape.elements == node.shape.elements and _keeps_order(node)
        return [node.operands[0]] if is_same else None
    if node.opcode == "reduce" and node.operands[0].shape.elements == node.shape.elements:
        return [node.operands[0]]  # along a dimension of one element
    return list(node.operands) if node.opcode in ELEMENTWISE else None


def _computed(node: Node, source: Node, samples: Any, constants: set[int], of: Callable[[Node], Any]) -> Any:
    if peel_shapes(node) is source:
        return samples
    constant = scalar_constant(node)
    if constant is not None:
        return np.full(samples.shape, int(constant)) if constant in constants else None
    operands = _operands(node)
    if operands is None or not _is_told(node, operands):
        return None
    values = [of(operand) for operand in operands]
    if any(value is None for value in values):
        return None
    if node.opcode == "reduce" or node.opcode in PEEL_SHAPES:
        return values[0]
    found = apply(node, values)
    # Integers wrap around.
    return found if found.dtype == bool else (found - _LEAST) % 2**32 + _LEAST


def _is_told(node: Node, operands: list[Node]) -> bool:
    """Whether the samples tell what an instruction does."""
    opcode, kind = node.opcode, node.shape.element_type
    kinds = [operand.shape.element_type for operand in operands]
    if opcode in PEEL_SHAPES:
        return True
    if opcode == "reduce":  # all of one truth
        return kinds == ["pred"] and scalar_constant(node.operands[1]) == 1
    if opcode == "select":
        return kinds == ["pred", kind, kind] and kind in ("pred", "s32")
    if set(kinds) == {"pred"}:
        return opcode in _OF_TRUTHS
    has_one_value = sum(scalar_constant(operand) is None for operand in operands) == 1
    if set(kinds) != {"s32"} or not has_one_value:
        return False
    if opcode == "subtract":
        return scalar_constant(operands[1]) is not None  # else it would run backwards
    return opcode == "compare" or opcode in _WITH_CONSTANTS
