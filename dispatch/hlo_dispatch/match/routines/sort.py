"""Sorts that a kernel knows: rows of f32 in JAX's order, recognized by what the comparison does with sample keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import COMPARISONS
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.pattern.constraints import is_row_major

_KEYS = np.array([np.nan, -np.nan, -np.inf, -2.5, -1.0, -0.0, 0.0, 1e-3, 1.0, 2.5, np.inf], np.float32)
_TYPES = {"f32": np.float32, "s32": np.int32, "pred": np.bool_}
_COMPUTED: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "select": np.where,
    "negate": np.negative,
}  # fmt: skip


def sorts_rows(node: Node, graph: FlatGraph) -> bool:
    """Whether the sort keeps the order of equal keys, and is along the last dimension, in memory too.

    What goes along with the keys is s32, and the comparison does not look at it. Keys of other types than f32 are the
    caller's to refuse.
    """
    keys, *others = node.operands
    shape = keys.shape
    if any(other.shape.element_type != "s32" for other in others):
        return False
    if not node.proto.is_stable or list(node.proto.dimensions[:]) != [len(shape.dimensions) - 1]:
        return False
    is_known = shape.element_type != "f32" or _is_ascending(node, graph)
    return is_known and all(is_row_major(operand.shape) for operand in node.operands)


def _is_ascending(node: Node, graph: FlatGraph) -> bool:
    """Whether the comparison says that the first of two keys is smaller: NaN is larger than numbers, -0 equals 0."""
    first, second = (axis.ravel() for axis in np.meshgrid(_KEYS, _KEYS, indexing="ij"))
    with np.errstate(all="ignore"):
        expected = (first < second) | (~np.isnan(first) & np.isnan(second))
        called = graph.module.computations[node.proto.called_computation_ids[0]]
        values: dict[int, Any] = {}
        for instruction in called.instructions[:]:
            if instruction.opcode == "parameter" and instruction.parameter_number < 2:
                values[instruction.id] = (first, second)[instruction.parameter_number]
            elif instruction.opcode != "parameter":
                operands = [values.get(operand) for operand in instruction.operand_ids[:]]
                values[instruction.id] = None if any(o is None for o in operands) else _value(instruction, operands)
    found = values[called.root_id]
    return found is not None and np.array_equal(found, expected)


def _value(instruction: InstructionProto, operands: list[Any]) -> Any:
    """What an instruction of scalars computes; None: it is none of those that comparisons have."""
    dtype = _TYPES.get(shape_of(instruction.shape).element_type)
    if dtype is None:
        return None
    if instruction.opcode == "constant":
        literal = instruction.literal
        held = {np.float32: literal.f32s, np.int32: literal.s32s, np.bool_: literal.preds}[dtype]
        return dtype(held[0])
    if instruction.opcode == "compare":
        return COMPARISONS[instruction.comparison_direction](*operands)
    if instruction.opcode in ("bitcast", "bitcast-convert"):
        return operands[0].view(dtype)
    computed = _COMPUTED.get(instruction.opcode)
    return None if computed is None else computed(*operands)
