"""Integer accumulation: s32 sums of int8 products that are converted to f32: y = float(x · w), x of s8 or u8, w of s8.

Quantized networks compute such sums, which are exact, followed by an ordinary epilogue chain (scales, bias, residual,
activation, rounding to int8). A kernel accumulates exactly as well, and rounds where the convert does.
"""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS_AND_LAYOUTS, PeelingPolicy
from hlo_dispatch.analysis.strided_view import View, full_view, peeled_views
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import unsupported_types
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES

SUM_TYPE = "s32"
_TYPES = INTEGER_TYPES | {SUM_TYPE}


def sums_integers(node: Node) -> bool:
    """Whether both operands are int8, widened or not, and the result holds their s32 sums."""
    if node.shape.element_type != SUM_TYPE:
        return False
    return all(narrow(full_view(operand), PEEL_CONVERTS_AND_LAYOUTS) is not None for operand in node.operands)


def narrow(view: View, policy: PeelingPolicy) -> View | None:
    """The furthest peeled view in int8; None: there is none."""
    found = [view for view in peeled_views(view, policy) if view.element_type in INTEGER_TYPES]
    return found[-1] if found else None


def as_numbers(node: Node) -> tuple[Node, ...] | Refusal:
    """The instructions that convert the sums to f32, if the sums have no other use; the last one is the convert."""
    refusal = unsupported_types(node, _TYPES)
    if refusal is not None:
        return refusal
    found: list[Node] = []
    value = node
    while value is node or value.opcode == "bitcast":
        if len(value.users) != 1 or value.is_live_out:
            return Refusal("dtype-unsupported", "its sums are used as integers, which no kernel gives", node.name)
        (value,) = value.users
        found.append(value)
        if value.proto.control_predecessor_ids:
            return Refusal("control-dependency", "the instruction has control predecessors", value.name)
    source = found[-2] if len(found) > 1 else node
    is_number = value.opcode == "convert" and value.shape.element_type == "f32"
    if not is_number or value.shape.strides != source.shape.strides:
        return Refusal("dtype-unsupported", "its sums are used as integers, which no kernel gives", node.name)
    return tuple(found)
