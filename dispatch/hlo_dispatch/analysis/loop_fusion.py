"""What a loop fusion may hold, and how often it computes what it holds.

A loop fusion computes its result element by element, and for each element everything that the element needs. What
is read through one and the same index is computed once for it; what is read through another index (behind a
transpose, a broadcast, a reduction) is computed again. So a product inside a loop is computed anew for every element
that reads it, and what is read in two ways doubles the work of everything before it: a few of them, one behind the
other, are a program that never ends. XLA fuses nothing of the kind, and nor may we.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.ir.opcode import ELEMENTWISE, LOOP_FUSIBLE
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of

# Elementwise, too, though no epilogue is made of them.
_ELEMENTWISE = ELEMENTWISE | frozenset(
    "bitcast-convert complex count-leading-zeros imag popcnt real reduce-precision remainder shift-left "
    "shift-right-arithmetic shift-right-logical".split()
)
_MAY_BE_IN_LOOP = (_ELEMENTWISE | LOOP_FUSIBLE) - {"reduce", "reduce-window"}
# So many different indices are told apart; behind them each way to an instruction counts.
_MOST_INDICES = 64
_MUCH = 16.0
"""So many times as much work as elements: no loop that XLA makes of what may be in one comes near."""

Indices = dict[object, float]
"""An index, known by the re-arranging instructions that it went through → how often something is read with it."""


def may_be_in_loop(opcode: str) -> bool:
    """Whether a loop fusion that we write may hold the instruction: one element of it costs little.

    The rest stands alone, or in the kind of fusion that it came from.
    """
    return opcode in _MAY_BE_IN_LOOP


def evaluations(computation: ComputationProto) -> dict[int, float]:
    """Instruction id → how many elements of it a loop computes for the whole result of a fused computation."""
    instructions = {instruction.id: instruction for instruction in computation.instructions}
    shapes = {identifier: shape_of(instruction.shape) for identifier, instruction in instructions.items()}
    read: dict[int, Indices] = {identifier: {} for identifier in instructions}
    read[computation.root_id] = {(): float(max(shapes[computation.root_id].elements, 1))}
    for user in reversed(instructions.values()):
        own = read[user.id]
        if len(own) > _MOST_INDICES:
            own = {user.id: sum(own.values())}
        operands = [shapes[operand] for operand in user.operand_ids]
        for place, operand in enumerate(user.operand_ids):
            if user.opcode in _ELEMENTWISE and shapes[user.id].dimensions == operands[place].dimensions:
                for index, times in own.items():
                    read[operand][index] = max(read[operand].get(index, 0.0), times)
            else:
                each = _read_for_one(user, shapes[user.id], operands)
                read[operand].update({(index, user.id, place): times * each for index, times in own.items()})
    return {identifier: sum(indices.values()) for identifier, indices in read.items()}


def is_recomputed(computation: ComputationProto) -> bool:
    """Whether a loop of this fused computation would compute what it holds many times over."""
    plain = sum(shape_of(i.shape).elements for i in computation.instructions if i.opcode != "parameter")
    times = evaluations(computation)
    total = sum(times[i.id] for i in computation.instructions if i.opcode not in ("parameter", "constant"))
    return total > _MUCH * plain


def has_few_ways(group: Sequence[Node]) -> bool:
    """Whether there are so few ways from the last of the nodes to the others that `is_recomputed` cannot be true.

    The nodes may be in a loop, operands first. Each way reads a node once for an element of the last one, at most.
    """
    ways = dict.fromkeys(group, 0)
    ways[group[-1]] = 1
    for node in reversed(group):
        for operand in node.operands:
            if operand in ways:
                ways[operand] += ways[node]
    return sum(ways.values()) <= _MUCH


def _read_for_one(user: InstructionProto, shape: Shape, operands: Sequence[Shape]) -> float:
    """How many elements of an operand an instruction reads for one element of its result."""
    if user.opcode == "reduce" and shape.is_array:
        return max(1.0, operands[0].elements / max(shape.elements, 1))
    if user.opcode == "dot":
        summed = user.dot_dimension_numbers.lhs_contracting_dimensions
        return float(math.prod(operands[0].dimensions[dimension] for dimension in summed))
    if user.opcode == "convolution":
        return float(operands[1].elements)
    if user.opcode == "reduce-window":
        return float(math.prod(dimension.size for dimension in user.window.dimensions))
    return 1.0
