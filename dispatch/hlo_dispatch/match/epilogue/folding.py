"""Per-channel scales and shifts behind a convolution, moved into its weights and its bias.

    ((conv(x, w) + b) · s + t)  =  conv(x, w · s) + (b · s + t)

A scale as a post-op costs a pass over every result element, in the weights one over every weight. Where
results are many and weights few (early layers, depthwise convolutions) folding is the faster form. The
weights' product and the bias become ordinary HLO, computed at every call: nothing is assumed constant.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.hlo.schema import InstructionProto
from hlo_dispatch.hlo.shape import Shape, row_major
from hlo_dispatch.match.epilogue.steps import PostOp, Step
from hlo_dispatch.match.strided import View, dense

if TYPE_CHECKING:
    from hlo_dispatch.match.match import Match

# New nodes stand behind every node of a real graph.
_indices = count(1 << 40)
_FOLDED = frozenset(("add", "sub", "mul"))


def fold(match: Match) -> Match | None:
    """The same match with its leading per-channel scales and shifts folded, or None where there is no scale."""
    anchor = match.anchor
    if anchor.weights is None:
        return None
    weights = anchor.weights.node
    # Weights of batch groups, and of a part of the channels, have other dimensions than the vectors.
    if anchor.whole is not None or len(anchor.destination) != len(anchor.node.shape.dimensions):
        return None
    if anchor.node.opcode != "convolution" or anchor.own_steps is not None or weights is not anchor.node.operands[1]:
        return None
    steps = _leading(match)
    algorithms = [step.post_ops[0].algorithm for step in steps]
    vectors = [view.node for step in steps if (view := step.post_ops[0].operand) is not None]
    if "mul" not in algorithms or weights.shape.element_type != "f32":
        return None
    make = _Maker(anchor.node)
    scale: Node | None = None
    shift: Node | None = None
    for own, algorithm in zip(vectors, algorithms, strict=True):
        vector = make.vector(own)
        if algorithm == "mul":
            scale = vector if scale is None else make.elementwise("multiply", scale, vector)
            shift = shift and make.elementwise("multiply", shift, vector)
        elif shift is None:
            shift = vector if algorithm == "add" else make.elementwise("negate", vector)
        else:
            shift = make.elementwise("add" if algorithm == "add" else "subtract", shift, vector)
    assert scale is not None, "one of the algorithms is a product"
    channel = anchor.node.proto.convolution_dimension_numbers.kernel_output_feature_dimension
    scaled = make.elementwise("multiply", weights, make.broadcast(scale, weights.shape, channel))
    folded = Step(
        tuple(node for step in steps for node in step.nodes),
        (_bias(match, shift),) if shift is not None else (),
        steps[-1].destination,
    )
    chain = replace(match.chain, steps=(folded, *match.chain.steps[len(steps) :]))
    return replace(
        match,
        anchor=replace(anchor, weights=View(scaled, anchor.weights.dimensions), formula="conv(x, w·s)"),
        chain=chain,
        taken=match.taken - len(steps) + 1,
        also_reads=(weights, *vectors),
    )


def _leading(match: Match) -> list[Step]:
    """The first steps, as far as each is a sum with or a product by an f32 vector along the channels."""
    found: list[Step] = []
    size = match.anchor.destination[match.anchor.channel][0]
    for step in match.steps:
        if len(step.post_ops) != 1 or step.nodes[-1].shape.element_type != "f32":
            break
        post_op = step.post_ops[0]
        if post_op.kind != "binary" or post_op.algorithm not in _FOLDED:
            break
        view = post_op.operand
        assert view is not None, "a binary post-op has an operand"
        is_vector = view.node.shape.elements == size == view.sizes[match.anchor.channel]
        if not is_vector or view.strides[match.anchor.channel] != 1 or view.element_type != "f32":
            break
        found.append(step)
    return found


def _bias(match: Match, shift: Node) -> PostOp:
    channel, destination = match.anchor.channel, match.anchor.destination
    dimensions = [(1, 1)] * len(destination)
    dimensions[channel] = (destination[channel][0], 1)
    return PostOp("binary", "add", "({} + {operand})", operand=View(shift, dense(dimensions, destination)))


class _Maker:
    """Makes nodes that no module has yet; they are emitted where the anchor was."""

    def __init__(self, origin: Node) -> None:
        self._origin = origin

    def elementwise(self, opcode: str, *operands: Node) -> Node:
        return self._node(opcode, operands[0].shape, operands)

    def broadcast(self, vector: Node, shape: Shape, dimension: int) -> Node:
        return self._node("broadcast", shape, (vector,), [dimension])

    def vector(self, node: Node) -> Node:
        """`node` under a shape of one dimension."""
        if len(node.shape.dimensions) == 1:
            return node
        return self._node("bitcast", row_major("f32", (node.shape.elements,)), (node,))

    def _node(self, opcode: str, shape: Shape, operands: tuple[Node, ...], dimensions: list[int] | None = None) -> Node:
        proto = InstructionProto(opcode=opcode, name=f"folded_{opcode}")
        proto.shape.CopyFrom(shape.to_proto())
        proto.dimensions.extend(dimensions or [])
        if self._origin.proto.HasField("metadata"):
            proto.metadata.CopyFrom(self._origin.proto.metadata)
        node = Node(next(_indices), opcode, shape, operands, proto)
        node.homes = [self._origin.top] if self._origin.top is not None else list(self._origin.homes)
        return node
