"""Reductions: the opcode that a reduction applies, in one instruction or in XLA's tree of several."""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import FLOAT_TYPES, shape_of
from hlo_dispatch.match.dependency_trace import compared_by_value

NEUTRAL_MAXIMUM_BOUND = -3e38
"""A lower bound of all finite numbers in every floating type: a maximum may start from it as from -inf."""


def applied_by(node: Node, graph: FlatGraph) -> str:
    """The opcode that a reduction applies, whether it rounds or not; empty: something else.

    Raises:
        ModuleError: it applies a computation that is not there, or is none.
    """
    return compared_by_value(_applied_at, node, graph)


def _applied_at(node: Node, graph: FlatGraph) -> str:
    try:
        called = node.proto.called_computation_ids[0]
        if called not in graph.applied:
            graph.applied[called] = _applied_by(graph.module.computations[called])
        return graph.applied[called]
    except LookupError as error:
        raise ModuleError(f"what %{node.name} applies is no HLO: {error} is not there") from error


def _applied_by(called: ComputationProto) -> str:
    by_id = {instruction.id: instruction for instruction in called.instructions[:]}

    def behind(instruction: InstructionProto) -> InstructionProto:
        while instruction.opcode == "convert" and shape_of(instruction.shape).element_type in FLOAT_TYPES:
            instruction = by_id[instruction.operand_ids[0]]
        return instruction

    applied = behind(by_id[called.root_id])
    sources = [behind(by_id[number]) for number in applied.operand_ids]
    is_of_both = len({source.id for source in sources}) == len(sources) == 2
    return applied.opcode if is_of_both and all(source.opcode == "parameter" for source in sources) else ""


def windows_before(node: Node, graph: FlatGraph, word: str) -> tuple[Node, ...]:
    """The reduce-windows whose results `node` reduces further, as in XLA's tree reductions, the last one first.

    XLA reduces 32 elements at a time: there are two where a dimension has more than 32 * 32.
    """
    found: list[Node] = []
    source, reduced = node.operands[0], tuple(node.proto.dimensions[:])
    while source.opcode == "reduce-window" and reduces(source, graph, word) and _tiles(source, reduced):
        found.append(source)
        source = source.operands[0]
    return tuple(found)


def is_reduced_further(windows: Node, graph: FlatGraph, word: str) -> bool:
    """Whether a reduction takes the results of a reduce-window together, rounded or not, as the last of XLA's tree."""
    reduced = _reduced_by_windows(windows)
    pending = list(windows.users)
    while pending:
        user = pending.pop()
        if user.opcode == "convert" or (user.opcode == "reduce-window" and _reduced_by_windows(user) == reduced):
            pending += user.users
        elif user.opcode == "reduce" and reduced.issubset(user.proto.dimensions[:]):
            if applied_by(user, graph) == word:
                return True
    return False


def _reduced_by_windows(node: Node) -> set[int]:
    return {number for number, window in enumerate(node.proto.window.dimensions) if window.size > 1}


def reduces(node: Node, graph: FlatGraph, word: str) -> bool:
    """Whether it is a maximum ("maximum") or a sum ("add") that starts from the neutral element."""
    if len(node.operands) != 2 or node.has_control_predecessors or not node.shape.is_array:
        return False
    start = scalar_constant(node.operands[1])
    if start is None or not (start == 0 if word == "add" else start <= NEUTRAL_MAXIMUM_BOUND):
        return False
    return applied_by(node, graph) == word


def _tiles(node: Node, reduced: tuple[int, ...]) -> bool:
    """Whether the windows tile the reduced dimensions completely."""
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
