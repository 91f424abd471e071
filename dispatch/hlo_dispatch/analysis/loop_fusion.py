"""Loop-fusion legality and recomputation: which ops a loop fusion may contain, and how often it evaluates them.

A loop fusion computes its result element by element, with all operands of each element. An operand that is read through
one index is evaluated once per element; through a different index (behind a transpose, a broadcast, a reduction) it is
evaluated again. A product inside a loop would be recomputed for every element that reads it, and a value with two read
paths doubles the work of everything before it: a chain of such values is exponential. XLA does not fuse these ops, and
the module rewriter must not either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.ir.opcode import ELEMENTWISE, LOOP_FUSIBLE, SHIFTS
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of

# Elementwise opcodes that no epilogue contains.
_ELEMENTWISE = (
    ELEMENTWISE
    | SHIFTS
    | frozenset("bitcast-convert complex count-leading-zeros imag popcnt real reduce-precision remainder".split())
)
_LOOP_FUSIBLE = (_ELEMENTWISE | LOOP_FUSIBLE) - {"reduce", "reduce-window"}
# Largest number of distinct indices per value; beyond it the paths are summed.
_MAX_INDICES = 64
_MAX_RECOMPUTATION = 16.0
"""Evaluations per element above which a loop counts as recomputing; XLA's own loops stay far below."""

Indices = dict[object, float]
"""Index, identified by the rearranging instructions on its path → number of reads through it."""


def is_loop_fusible(opcode: str) -> bool:
    """Whether a created loop fusion may contain the opcode: one element of it costs little.

    Other ops stay unfused, or in their original kind of fusion.
    """
    return opcode in _LOOP_FUSIBLE


def evaluations(computation: ComputationProto) -> dict[int, float]:
    """Instruction id → number of elements of it that a loop evaluates for the whole result of a fused computation."""
    instructions = computation.instructions[:]
    shapes = {instruction.id: shape_of(instruction.shape) for instruction in instructions}
    read: dict[int, Indices] = {identifier: {} for identifier in shapes}
    read[computation.root_id] = {(): float(max(shapes[computation.root_id].elements, 1))}
    for user in reversed(instructions):
        operands = user.operand_ids[:]
        if not operands:
            continue
        identifier, shape = user.id, shapes[user.id]
        read_indices = read[identifier]
        if len(read_indices) > _MAX_INDICES:
            read_indices = {identifier: sum(read_indices.values())}
        is_elementwise = user.opcode in _ELEMENTWISE
        for place, operand in enumerate(operands):
            if is_elementwise and shape.dimensions == shapes[operand].dimensions:
                of_operand = read[operand]
                for index, times in read_indices.items():
                    of_operand[index] = max(of_operand.get(index, 0.0), times)
            else:
                each = _reads_per_element(user, shape, [shapes[operand] for operand in operands])
                read[operand].update(
                    {(index, identifier, place): times * each for index, times in read_indices.items()}
                )
    return {identifier: sum(indices.values()) for identifier, indices in read.items()}


def is_recomputed(computation: ComputationProto) -> bool:
    """Whether a loop fusion of this computation would recompute its ops many times."""
    plain = sum(shape_of(i.shape).elements for i in computation.instructions[:] if i.opcode != "parameter")
    times = evaluations(computation)
    total = sum(times[i.id] for i in computation.instructions[:] if i.opcode not in ("parameter", "constant"))
    return total > _MAX_RECOMPUTATION * plain


def has_few_paths(group: Sequence[Node]) -> bool:
    """Whether there are so few paths from the last node to the others that `is_recomputed` must be false.

    The nodes are loop-fusible, operands first. Each path reads a node at most once per element of the last one.
    """
    paths = dict.fromkeys(group, 0)
    paths[group[-1]] = 1
    for node in reversed(group):
        for operand in node.operands:
            if operand in paths:
                paths[operand] += paths[node]
    return sum(paths.values()) <= _MAX_RECOMPUTATION


def _reads_per_element(user: InstructionProto, shape: Shape, operands: Sequence[Shape]) -> float:
    """Number of elements of an operand that an instruction reads per result element."""
    if user.opcode == "reduce":
        result = shape if shape.is_array else shape_of(user.shape.tuple_shapes[0])
        return max(1.0, operands[0].elements / max(result.elements, 1))
    if user.opcode == "dot":
        summed = user.dot_dimension_numbers.lhs_contracting_dimensions[:]
        return float(math.prod(operands[0].dimensions[dimension] for dimension in summed))
    if user.opcode == "convolution":
        return float(operands[1].elements)
    if user.opcode == "reduce-window":
        return float(math.prod(dimension.size for dimension in user.window.dimensions[:]))
    return 1.0
