"""What a reduction applies to its elements."""

from __future__ import annotations

from hlo_dispatch.hlo.flat import FlatGraph, Node
from hlo_dispatch.hlo.schema import InstructionProto
from hlo_dispatch.hlo.shape import shape_of
from hlo_dispatch.match.looking import FLOATING

LARGEST_NEGATIVE = -3e38
"""What every finite number is above, in any of the floating types: a maximum may begin from it as from -inf."""


def applied_by(node: Node, graph: FlatGraph) -> str:
    """The opcode that a reduction applies, rounding its result or not; empty where it is anything else."""
    called = graph.module.computations[node.proto.called_computation_ids[0]]
    by_id = {instruction.id: instruction for instruction in called.instructions[:]}

    def behind(instruction: InstructionProto) -> InstructionProto:
        while instruction.opcode == "convert" and shape_of(instruction.shape).element_type in FLOATING:
            instruction = by_id[instruction.operand_ids[0]]
        return instruction

    applied = behind(by_id[called.root_id])
    sources = [behind(by_id[number]) for number in applied.operand_ids]
    is_of_both = len({source.id for source in sources}) == len(sources) == 2
    return applied.opcode if is_of_both and all(source.opcode == "parameter" for source in sources) else ""
