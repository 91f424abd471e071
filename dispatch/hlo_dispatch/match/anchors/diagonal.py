"""Diagonal extraction from a dense weights gradient, which is XLA's form of a depthwise gradient.

XLA:CPU has no batch groups: with as many groups as channels C it computes the gradient of every output channel
with respect to every input channel, and sums what is left after

    select(iota(i) == iota(o), dense[.., i, .., o], 0)   over i or over o

(by a reduce, or a reduce-window as long as the channels). That is dw[o, o, k]: a gradient with C groups of one
channel each, C times less work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import Dimension, dimension_number, with_dense_strides
from hlo_dispatch.ir.schema import ComputationProto
from hlo_dispatch.match.epilogue.steps import Step

_INTEGERS = frozenset(("s32", "u32", "s64", "u64"))


def diagonal_step(
    computations: Mapping[int, ComputationProto],
    value: Node,
    destination: tuple[Dimension, ...],
    is_inner: Callable[[Node], bool],
) -> Step | None:
    """The epilogue step from a dense gradient to its diagonal; None: the value's user is something else.

    Args:
        computations: the module's, by id.
        destination: the dimensions (O, I, spatial…) over the value's buffer.
        is_inner: whether a value is for its one user alone.
    """
    outputs, inputs = destination[:2]
    if len(value.users) != 1 or outputs[0] != inputs[0] or outputs[0] == 1:
        return None
    select = value.users[0]
    numbers = (dimension_number(outputs, value), dimension_number(inputs, value))
    channels = {number for number in numbers if number is not None}
    if None in numbers or not _keeps_diagonal(select, value, channels) or not is_inner(select):
        return None
    total = select.users[0]
    summed = _summed_dimension(total, select, computations)
    if summed is None or summed not in channels:
        return None
    (kept,) = channels - {summed}
    # Where the sum drops the dimension, those behind it move up by one.
    moved = _moved(destination[2:], value, total, summed)
    diagonal = _moved([outputs if dimension_number(outputs, value) == kept else inputs], value, total, summed)
    if moved is None or diagonal is None:
        return None
    dimensions = (*diagonal, (1, 1), (1, 1), *moved)
    return Step((select, total), (), with_dense_strides(dimensions, dimensions))


def _keeps_diagonal(select: Node, value: Node, channels: set[int]) -> bool:
    """Whether the node selects the value where its two channel numbers are equal, and 0 elsewhere."""
    if select.opcode != "select" or select.operands[1] is not value or select.has_control_predecessors:
        return False
    condition, _, other = select.operands
    if scalar_constant(other) != 0.0 or condition.opcode != "compare" or condition.proto.comparison_direction != "EQ":
        return False
    if any(node.shape.strides != value.shape.strides for node in (select, condition)):
        return False
    if any(operand.shape.element_type not in _INTEGERS for operand in condition.operands):
        return False
    return {_counted_dimension(operand) for operand in condition.operands} == channels


def _counted_dimension(node: Node) -> int | None:
    """The dimension whose index the node's elements are, as in an iota; None: something else."""
    if node.opcode == "iota":
        return node.proto.dimensions[0]
    if node.opcode == "broadcast":
        inner = _counted_dimension(node.operands[0])
        return None if inner is None else node.proto.dimensions[inner]
    return None


def _summed_dimension(total: Node, value: Node, computations: Mapping[int, ComputationProto]) -> int | None:
    """The one dimension of `value` over which `total` is the sum."""
    if len(total.operands) != 2 or total.operands[0] is not value or total.has_control_predecessors:
        return None
    if total.opcode not in ("reduce", "reduce-window") or scalar_constant(total.operands[1]) != 0.0:
        return None
    if total.shape.element_type != value.shape.element_type or not _adds(total, computations):
        return None
    if total.opcode == "reduce":
        return total.proto.dimensions[0] if len(total.proto.dimensions) == 1 else None
    long = [number for number, window in enumerate(total.proto.window.dimensions) if window.size != 1]
    if len(long) != 1 or total.proto.window.dimensions[long[0]].size != value.shape.dimensions[long[0]]:
        return None
    # One full window per row and nothing skipped: the result is as long as the value in every other dimension.
    expected = list(value.shape.dimensions)
    expected[long[0]] = 1
    plain = all(w.padding_low == w.padding_high == 0 and w.base_dilation <= 1 and w.window_dilation <= 1
                for w in total.proto.window.dimensions[:])  # fmt: skip
    return long[0] if plain and list(total.shape.dimensions) == expected else None


def _adds(total: Node, computations: Mapping[int, ComputationProto]) -> bool:
    """Whether the node's computation is parameter 0 + parameter 1."""
    (called,) = total.proto.called_computation_ids
    instructions = computations[called].instructions
    inner = [instruction for instruction in instructions if instruction.opcode != "parameter"]
    if len(inner) != 1 or len(instructions) != 3 or inner[0].opcode != "add":
        return False
    return len(set(inner[0].operand_ids[:])) == 2


def _moved(dimensions: Iterable[Dimension], value: Node, total: Node, summed: int) -> tuple[Dimension, ...] | None:
    """Dimensions of `value`, rebased onto the buffer of `total`, which lacks the summed one."""
    moved: list[Dimension] = []
    for dimension in dimensions:
        if dimension[0] == 1:
            moved.append((1, 1))
            continue
        number = dimension_number(dimension, value)
        if number is None:
            return None
        if total.opcode == "reduce" and number > summed:
            number -= 1
        moved.append((dimension[0], total.shape.strides[number]))
    return tuple(moved)
