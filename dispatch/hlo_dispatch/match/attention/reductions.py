"""Reductions over keys: in one instruction, or in two, the first of which reduces windows, as XLA's trees do."""

from __future__ import annotations

from typing import NamedTuple

from hlo_dispatch.hlo.flat import FlatGraph, Node
from hlo_dispatch.hlo.schema import InstructionProto
from hlo_dispatch.hlo.shape import HALF_TYPES, shape_of
from hlo_dispatch.match.function import scalar_constant

_FLOATING = frozenset(("f32",)) | HALF_TYPES
# What every finite score is above, in any of the types.
_LARGEST_NEGATIVE = -3e38


class Reduction(NamedTuple):
    """What is reduced, and along which of its dimensions."""

    source: Node
    dimensions: tuple[int, ...]
    kept: tuple[int, ...]
    """The source's dimension for each of the result's."""
    nodes: tuple[Node, ...]


def read_reduction(node: Node, graph: FlatGraph, word: str) -> Reduction | None:
    """The reduction that `node` is, if it is a "maximum" or a sum ("add") from its neutral element on."""
    if node.opcode != "reduce" or not _reduces(node, graph, word):
        return None
    reduced = tuple(node.proto.dimensions[:])
    source, nodes = node.operands[0], (node,)
    if source.opcode == "reduce-window" and _reduces(source, graph, word):
        if not _tiles(source, reduced):
            return None
        source, nodes = source.operands[0], (node, source)
    kept = tuple(number for number in range(len(source.shape.dimensions)) if number not in reduced)
    return Reduction(source, reduced, kept, nodes)


def _reduces(node: Node, graph: FlatGraph, word: str) -> bool:
    if len(node.operands) != 2 or node.proto.control_predecessor_ids or not node.shape.is_array:
        return False
    start = scalar_constant(node.operands[1])
    if start is None or not (start == 0 if word == "add" else start <= _LARGEST_NEGATIVE):
        return False
    return _applied(node, graph) == word


def _applied(node: Node, graph: FlatGraph) -> str:
    """The opcode that a reduction applies, rounding its result or not; empty where it is anything else."""
    called = graph.module.computations[node.proto.called_computation_ids[0]]
    by_id = {instruction.id: instruction for instruction in called.instructions[:]}

    def behind(instruction: InstructionProto) -> InstructionProto:
        while instruction.opcode == "convert" and shape_of(instruction.shape).element_type in _FLOATING:
            instruction = by_id[instruction.operand_ids[0]]
        return instruction

    applied = behind(by_id[called.root_id])
    sources = [behind(by_id[number]) for number in applied.operand_ids]
    is_of_both = len({source.id for source in sources}) == len(sources) == 2
    return applied.opcode if is_of_both and all(source.opcode == "parameter" for source in sources) else ""


def _tiles(node: Node, reduced: tuple[int, ...]) -> bool:
    """Whether the windows lie side by side along the reduced dimensions and leave nothing out."""
    source = node.operands[0].shape.dimensions
    for number, window in enumerate(node.proto.window.dimensions):
        if window.window_reversal or window.window_dilation > 1 or window.base_dilation > 1:
            return False
        if number not in reduced:
            if (window.size, window.stride, window.padding_low, window.padding_high) != (1, 1, 0, 0):
                return False
            continue
        covered = node.shape.dimensions[number] * window.size
        padded = window.padding_low + source[number] + window.padding_high
        if window.stride != window.size or covered != padded or min(window.padding_low, window.padding_high) < 0:
            return False
    return True
