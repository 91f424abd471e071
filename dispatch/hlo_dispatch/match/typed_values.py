"""Typed values: what instructions compute element by element, of samples, in the element types that they have.

As `elementwise_points.py` evaluates functions in float64, this evaluates comparisons and arithmetic of integers, whose
results depend on their bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, Node
from hlo_dispatch.analysis.scalar_constants import COMPARISONS
from hlo_dispatch.pattern.constraints import is_row_major

DTYPES: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "s32": np.int32, "s64": np.int64, "u32": np.uint32, "u64": np.uint64,
    "pred": np.bool_,
}  # fmt: skip
_LITERALS = {"f32": "f32s", "f64": "f64s", "s32": "s32s", "s64": "s64s", "u32": "u32s", "u64": "u64s", "pred": "preds"}
"""Element type → the literal's field that has its numbers."""
_COMPUTED: dict[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "not": np.invert, "select": np.where, "negate": np.negative, "maximum": np.maximum,
    "minimum": np.minimum, "shift-left": np.left_shift, "abs": np.abs,
}  # fmt: skip
_SAME_ELEMENTS = frozenset(("bitcast", "copy", "reshape", INSERTED_COPY))
_MOST_VALUES = 256


class TypedValues:
    """Values of nodes, each at the same samples."""

    def __init__(self, leaf: Callable[[Node], Any], elements: int) -> None:
        """
        Args:
            leaf: a node's samples where they are known, or another node that has the same value; None: neither.
            elements: of the arrays that are followed, element by element; others are scalars.
        """
        self._leaf, self._elements = leaf, elements
        self._known: dict[Node, Any] = {}

    @staticmethod
    def operands_of(node: Node, elements: int) -> tuple[Node, ...] | None:
        """The operands whose elements, or whose only one, an element of the node is computed from; None: unknown."""
        if node.shape.element_type not in DTYPES or not is_row_major(node.shape):
            return None
        operands = node.operands
        if any(not operand.shape.is_array or operand.shape.elements not in (1, elements) for operand in operands):
            return None
        if node.opcode == "broadcast":
            named = list(node.proto.dimensions[:])
            is_same = operands[0].shape.elements == node.shape.elements and named == sorted(named)
            return operands if is_same or operands[0].shape.elements == 1 else None
        is_known = node.opcode in _COMPUTED or node.opcode in _SAME_ELEMENTS or node.opcode in _TYPED
        return operands if is_known else None

    def of(self, node: Node) -> Any:
        """The node's samples, or a scalar where all are equal; None: they cannot be told."""
        pending = [node]
        while pending:
            current = pending[-1]
            if current in self._known:
                pending.pop()
                continue
            operands = self._operands(current)
            missing = [operand for operand in operands if operand not in self._known]
            if missing:
                pending += missing
            if len(self._known) + len(pending) > _MOST_VALUES:
                return None
            if not missing:
                pending.pop()
        return self._known[node]

    def _operands(self, node: Node) -> tuple[Node, ...]:
        """Computes the node where its operands are known; returns what has to be known for that."""
        leaf = self._leaf(node)
        if isinstance(leaf, Node):
            if leaf in self._known:
                self._known[node] = self._known[leaf]
            return (leaf,)
        if leaf is not None or node.opcode == "constant":
            self._known[node] = _literal(node) if leaf is None else leaf
            return ()
        operands = self.operands_of(node, self._elements)
        if not operands:
            self._known[node] = None
            return ()
        values = [self._known.get(operand) for operand in operands if operand in self._known]
        if len(values) == len(operands):
            is_known = all(value is not None for value in values)
            with np.errstate(all="ignore"):
                self._known[node] = _computed(node, values) if is_known else None
        return operands


def _literal(node: Node) -> Any:
    kind = node.shape.element_type
    if kind not in _LITERALS or node.shape.elements != 1:
        return None
    return DTYPES[kind](getattr(node.proto.literal, _LITERALS[kind])[0])


def _computed(node: Node, values: list[Any]) -> Any:
    dtype = DTYPES[node.shape.element_type]
    if node.opcode == "compare":
        return COMPARISONS[node.proto.comparison_direction](*values)
    if node.opcode == "convert":
        return values[0].astype(dtype)
    if node.opcode == "divide":
        is_integer = np.issubdtype(dtype, np.integer)
        return _quotient(*values) if is_integer else values[0] / values[1]
    if node.opcode in ("bitcast", "bitcast-convert"):
        return values[0].view(dtype) if values[0].dtype.itemsize == np.dtype(dtype).itemsize else None
    if node.opcode == "shift-right-logical":
        unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
        return (values[0].view(unsigned) >> values[1].view(unsigned)).view(dtype)
    if node.opcode == "shift-right-arithmetic":
        signed = np.dtype(f"i{np.dtype(dtype).itemsize}")
        return (values[0].view(signed) >> values[1].view(signed)).view(dtype)
    if node.opcode == "clamp":
        return np.minimum(np.maximum(values[1], values[0]), values[2])
    if node.opcode == "is-finite":
        return np.isfinite(values[0])
    return _COMPUTED[node.opcode](*values) if node.opcode in _COMPUTED else values[0]


def _quotient(dividend: Any, divisor: Any) -> Any:
    """As XLA rounds it, towards 0."""
    if not np.all(divisor):
        return None
    return (
        np.trunc(dividend / divisor).astype(np.result_type(dividend, divisor))
        if np.any(dividend < 0)
        else (dividend // divisor)
    )


_TYPED = frozenset(
    ("bitcast-convert", "clamp", "compare", "convert", "divide", "is-finite", "shift-right-arithmetic",
     "shift-right-logical")
)  # fmt: skip
