"""Sorts that a kernel knows: rows of keys, their order recognized by what the comparison does with sample keys.

XLA's TopK, a custom-call of a row's values, has such a comparison, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import COMPARISONS
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.pattern.constraints import is_row_major

TOP_K = "TopK"
"""The target of XLA's own custom-call for the largest of a row, in total order, the largest first."""


def _pairs(keys: Any) -> tuple[Any, Any]:
    """Each key with each other, and with those that differ from it in one bit, which a comparison may leave out."""
    unsigned: Any = np.dtype(f"u{keys.dtype.itemsize}").type
    bits = unsigned(1) << np.arange(8 * keys.dtype.itemsize, dtype=unsigned)
    others: Any = np.concatenate(
        [np.tile(keys, (keys.size, 1)), (keys.view(unsigned)[:, None] ^ bits).view(keys.dtype)], 1
    )
    return keys.repeat(others.shape[1]), others.ravel()


_NUMBERS = [np.nan, -np.nan, -np.inf, -2.5, -1.0, -0.0, 0.0, 1e-3, 1.0, 2.5, np.inf]
_PAIRS = {
    "f32": _pairs(np.array(_NUMBERS, np.float32)),
    "f64": _pairs(np.array(_NUMBERS, np.float64)),
    "s32": _pairs(np.array([-(2**31), -7, -1, 0, 1, 7, 2**31 - 1], np.int32)),
    "u32": _pairs(np.array([0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1], np.uint32)),
}
"""Element type → pairs of keys that tell orders apart."""
_TYPES = {
    "f32": np.float32, "f64": np.float64, "s32": np.int32, "s64": np.int64, "u32": np.uint32, "pred": np.bool_,
}  # fmt: skip
_CONSTANTS = {"f32": "f32s", "f64": "f64s", "s32": "s32s", "s64": "s64s", "pred": "preds"}
"""Element type → the literal's field that has its numbers."""
_ALONG = ("f32", "f64", "s32", "s64", "u32")
_COMPUTED: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "select": np.where,
    "negate": np.negative,
}  # fmt: skip


class Order(NamedTuple):
    """An order of keys, as a kernel's attributes say it."""

    descending: bool
    total_order: bool
    """Of floats: by bits, from -NaN over -0 and 0 to NaN; otherwise NaN is larger than numbers, and -0 equals 0."""


_ORDERS = (Order(False, False), Order(True, False), Order(False, True), Order(True, True))


def sorts_rows(node: Node, graph: FlatGraph) -> bool:
    """Whether a sort or TopK has an order that a kernel knows. Keys of other types are the caller's to refuse."""
    is_other = bool(node.operands) and node.operands[0].shape.element_type not in _PAIRS
    return is_other or order_of_rows(node, graph) is not None


def order_of_rows(node: Node, graph: FlatGraph) -> Order | None:
    """The order of a sort that is along the last dimension, in memory too; None: it is something else.

    Equal keys keep their order, or nothing goes along with them. The comparison does not look at what does.
    """
    if not node.operands or len(node.proto.called_computation_ids) != 1:
        return None
    keys, *others = node.operands
    if not all(is_row_major(operand.shape) for operand in node.operands) or keys.shape.element_type not in _PAIRS:
        return None
    if any(other.shape.element_type not in _ALONG for other in others):
        return None
    if node.opcode == "custom-call":
        return order if (order := _order(node, graph)) == Order(True, True) else None
    is_along_last = list(node.proto.dimensions[:]) == [len(keys.shape.dimensions) - 1]
    return _order(node, graph) if is_along_last and (node.proto.is_stable or not others) else None


def _order(node: Node, graph: FlatGraph) -> Order | None:
    """The order by which the comparison says that the first of two keys comes before the second."""
    first, second = _PAIRS[node.operands[0].shape.element_type]
    called = graph.module.computations[node.proto.called_computation_ids[0]]
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for instruction in called.instructions[:]:
            if instruction.opcode == "parameter" and instruction.parameter_number < 2:
                values[instruction.id] = (first, second)[instruction.parameter_number]
            elif instruction.opcode != "parameter":
                operands = [values.get(operand) for operand in instruction.operand_ids[:]]
                values[instruction.id] = None if any(o is None for o in operands) else _value(instruction, operands)
    found = values.get(called.root_id)
    return next((order for order in _ORDERS if found is not None and _is_in_order(order, first, second, found)), None)


def _is_in_order(order: Order, first: Any, second: Any, found: Any) -> bool:
    one, other = (_key(axis, order) for axis in (first, second))
    return np.array_equal(found, one > other if order.descending else one < other)


def _key(numbers: Any, order: Order) -> Any:
    """Integers in the order of the numbers."""
    if numbers.dtype.kind != "f":
        return numbers
    ordered = numbers if order.total_order else _without_signs(numbers)
    bits: Any = ordered.view(np.dtype(f"i{numbers.dtype.itemsize}"))
    turned: Any = bits ^ np.iinfo(bits.dtype).max
    return cast("Any", np.where(bits < 0, turned, bits))


def _without_signs(numbers: Any) -> Any:
    """With 0 for -0, and one NaN."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        positive: Any = numbers + numbers.dtype.type(0)
    return cast("Any", np.where(np.isnan(numbers), numbers.dtype.type(np.nan), positive))


def _value(instruction: InstructionProto, operands: list[Any]) -> Any:
    """What an instruction of scalars computes; None: it is none of those that comparisons have."""
    kind = shape_of(instruction.shape).element_type
    dtype = _TYPES.get(kind)
    if dtype is None:
        return None
    if instruction.opcode == "constant":
        return dtype(getattr(instruction.literal, _CONSTANTS[kind])[0]) if kind in _CONSTANTS else None
    if instruction.opcode == "compare":
        return COMPARISONS[instruction.comparison_direction](*operands)
    if instruction.opcode in ("bitcast", "bitcast-convert"):
        return operands[0].view(dtype)
    computed = _COMPUTED.get(instruction.opcode)
    return None if computed is None else computed(*operands)
