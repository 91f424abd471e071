"""Peeling policies: which instructions may stand between a value and the operand whose elements it has.

`strided_view.py` peels a view by such a policy, and knows where the elements lie afterwards. Where only the value
matters, or the instruction that writes a buffer, the functions here peel by opcode alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import HALF_TYPES

if TYPE_CHECKING:
    from hlo_dispatch.analysis.flat_graph import Node

PeelingPolicy = frozenset[str]
"""The opcodes that may be peeled, and `WIDENING` for converts that change no value."""

WIDENING = "widening"
INSERTED_COPY = "kept-copy"
"""The opcode of a copy of copy insertion in a flat graph."""

PEEL_BITCASTS: PeelingPolicy = frozenset(("bitcast",))
PEEL_COPIES: PeelingPolicy = frozenset(("copy",))
PEEL_SHAPES: PeelingPolicy = PEEL_BITCASTS | PEEL_COPIES | {"reshape"}
PEEL_LAYOUTS: PeelingPolicy = PEEL_SHAPES | {"transpose"}
"""The same elements in another order or shape."""
PEEL_WIDENING: PeelingPolicy = frozenset((WIDENING,))
PEEL_ROUNDING: PeelingPolicy = frozenset(("convert", "reduce-precision"))
"""The same value under another type, rounded or not; of views, between float types only."""
PEEL_BROADCASTS: PeelingPolicy = frozenset(("broadcast",))
PEEL_SLICES: PeelingPolicy = frozenset(("slice",))
PEEL_REVERSALS: PeelingPolicy = frozenset(("reverse",))

PEEL_CONVERTS: PeelingPolicy = PEEL_BITCASTS | PEEL_WIDENING
PEEL_CONVERTS_AND_LAYOUTS: PeelingPolicy = PEEL_LAYOUTS | PEEL_WIDENING
PEEL_CONVERTS_AND_BROADCASTS: PeelingPolicy = PEEL_CONVERTS | PEEL_BROADCASTS
PEEL_ROUNDING_AND_BITCASTS: PeelingPolicy = PEEL_BITCASTS | PEEL_ROUNDING
PEEL_ROUNDING_AND_SHAPES: PeelingPolicy = PEEL_SHAPES | PEEL_ROUNDING
PEEL_ROUNDING_AND_LAYOUTS: PeelingPolicy = PEEL_LAYOUTS | PEEL_ROUNDING

PEEL_INSERTED_COPIES: PeelingPolicy = frozenset((INSERTED_COPY,))
PEEL_BITCASTS_AND_COPIES: PeelingPolicy = PEEL_BITCASTS | PEEL_INSERTED_COPIES
PEEL_SHAPES_AND_COPIES: PeelingPolicy = PEEL_SHAPES | PEEL_INSERTED_COPIES
PEEL_COPIES_AND_ROUNDING: PeelingPolicy = PEEL_INSERTED_COPIES | {"copy", "reduce-precision"}
"""The same element at the same index."""
PEEL_SCALARS: PeelingPolicy = PEEL_SHAPES_AND_COPIES | {"convert"}
"""The same number, of one integer."""
PEEL_REARRANGEMENTS: PeelingPolicy = PEEL_LAYOUTS | PEEL_SLICES | PEEL_INSERTED_COPIES
"""Elements of the same array, in another order or shape."""

PEEL_ALL: PeelingPolicy = PEEL_ROUNDING_AND_LAYOUTS | PEEL_BROADCASTS | PEEL_SLICES | PEEL_REVERSALS
"""What any policy of views peels."""
PEEL_RENAMES: PeelingPolicy = PEEL_BITCASTS | {"get-tuple-element"}
"""The same buffer, or a part of the tuple's."""


def is_widening(node: Node) -> bool:
    """Whether `node` is a convert from half precision to f32, which changes no value."""
    return (
        node.opcode == "convert"
        and node.shape.element_type == "f32"
        and node.operands[0].shape.element_type in HALF_TYPES
    )


def peel_node(node: Node, policy: PeelingPolicy) -> Node:
    """The first value that the policy does not peel."""
    while node.opcode in policy and node.operands:
        node = node.operands[0]
    return node


def peel_instruction(
    instruction: InstructionProto, policy: PeelingPolicy, by_id: Mapping[int, InstructionProto]
) -> InstructionProto:
    """The first instruction of a computation that the policy does not peel."""
    while instruction.opcode in policy:
        instruction = by_id[instruction.operand_ids[0]]
    return instruction


def is_broadcast(node: Node) -> bool:
    """Whether a value is a broadcast, under whatever type."""
    return peel_node(node, PEEL_ROUNDING_AND_BITCASTS).opcode == "broadcast"
