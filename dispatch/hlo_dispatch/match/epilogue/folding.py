"""Scale folding: moves per-channel scales and shifts behind a convolution into its weights and its bias.

    ((conv(x, w) + b) · s + t)  =  conv(x, w · s) + (b · s + t)

A scale costs a pass over every result element as a post-op, and a pass over every weight if folded. Where
results are many and weights few (first layers, depthwise convolutions) folding is faster. The scaled
weights and the bias become ordinary HLO, computed at every call: nothing is assumed constant.

Folding rounds weights of half precision once more, in exchange for the rounding between steps that a kernel leaves
out. They are folded where they are static, since that part is not computed in every call.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import is_widening
from hlo_dispatch.analysis.strided_view import View, is_bitcast_copy, with_dense_strides
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import HALF_TYPES, Shape, row_major
from hlo_dispatch.match.epilogue.steps import PostOp, Step
from hlo_dispatch.match.fused_anchor import FusedAnchor

# New nodes have larger indices than all nodes of a graph.
_indices = count(1 << 40)
_FOLDED = frozenset(("add", "sub", "mul"))


def fold(fused: FusedAnchor) -> FusedAnchor | None:
    """The anchor with its leading per-channel scales and shifts folded; None: there is no scale."""
    anchor = fused.anchor
    if anchor.weights is None:
        return None
    weights = anchor.weights.node
    is_half = weights.shape.element_type in HALF_TYPES
    shape = _shape_in_convolution(anchor.node, weights)
    # Weights of batch groups, and of a part of the channels, have other dimensions than the vectors.
    if anchor.unsliced is not None or len(anchor.destination) != len(anchor.node.shape.dimensions):
        return None
    if anchor.node.opcode != "convolution" or anchor.kernel_specific_step is not None or shape is None:
        return None
    steps = _leading(fused, is_half)
    post_ops = [post_op for step in steps for post_op in step.post_ops]
    algorithms = [post_op.algorithm for post_op in post_ops]
    vectors = [post_op.operand.node for post_op in post_ops if post_op.operand is not None]
    if "mul" not in algorithms or not (is_half or weights.shape.element_type == "f32"):
        return None
    if is_half and not fused.static >= {weights, *vectors}:
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
    scaled = make.scaled(make.renamed(weights, shape), scale, channel)
    folded = Step(
        tuple(node for step in steps for node in step.nodes),
        (_bias(fused, shift),) if shift is not None else (),
        steps[-1].destination,
    )
    chain = replace(fused.chain, steps=(folded, *fused.chain.steps[len(steps) :]))
    return replace(
        fused,
        anchor=replace(anchor, weights=View(scaled, anchor.weights.dimensions), formula="conv(x, w·s)"),
        chain=chain,
        step_count=fused.step_count - len(steps) + 1,
        extra_reads=(weights, *vectors),
    )


def _shape_in_convolution(convolution: Node, weights: Node) -> Shape | None:
    """The shape under which a convolution reads these weights, in their type; None: it reads others, or moves them.

    They may be widened and renamed on the way: where a depthwise kernel is reshaped, XLA leaves a copy that moves
    nothing.
    """
    given = original = convolution.operands[1]
    while original is not weights and _keeps_order(original):
        original = original.operands[0]
    if original is not weights:
        return None
    return Shape(weights.shape.element_type, given.shape.dimensions, given.shape.minor_to_major)


def _keeps_order(node: Node) -> bool:
    """Whether its elements have the memory order of its operand's."""
    if is_widening(node):
        return node.shape.minor_to_major == node.operands[0].shape.minor_to_major
    return node.opcode == "bitcast" or is_bitcast_copy(node)


def _leading(fused: FusedAnchor, is_half: bool) -> list[Step]:
    """The leading steps that each add or multiply a vector along the channels.

    Args:
        is_half: whether roundings may stand between them, and vectors be of half precision, too.
    """
    found: list[Step] = []
    last = 0
    types = HALF_TYPES | {"f32"} if is_half else {"f32"}
    size = fused.anchor.destination[fused.anchor.channel][0]
    for step in fused.steps:
        if is_half and not step.post_ops and all(node.opcode == "convert" for node in step.nodes):
            found.append(step)
            continue
        if len(step.post_ops) != 1 or step.nodes[-1].shape.element_type not in types:
            break
        post_op = step.post_ops[0]
        if post_op.kind != "binary" or post_op.algorithm not in _FOLDED:
            break
        view = post_op.operand
        assert view is not None, "a binary post-op has an operand"
        is_vector = view.node.shape.elements == size == view.sizes[fused.anchor.channel]
        if not is_vector or view.strides[fused.anchor.channel] != 1 or view.element_type not in types:
            break
        found.append(step)
        last = len(found)
    return found[:last]


def _bias(fused: FusedAnchor, shift: Node) -> PostOp:
    channel, destination = fused.anchor.channel, fused.anchor.destination
    dimensions = [(1, 1)] * len(destination)
    dimensions[channel] = (destination[channel][0], 1)
    return PostOp("binary", "add", "({} + {operand})", operand=View(shift, with_dense_strides(dimensions, destination)))


class _Maker:
    """Builder of nodes that no module contains yet; they are emitted in front of the anchor op."""

    def __init__(self, origin: Node) -> None:
        self._origin = origin

    def elementwise(self, opcode: str, *operands: Node) -> Node:
        return self._node(opcode, operands[0].shape, operands)

    def broadcast(self, vector: Node, shape: Shape, dimension: int) -> Node:
        return self._node("broadcast", shape, (vector,), [dimension])

    def scaled(self, weights: Node, scale: Node, channel: int) -> Node:
        """The weights with a scale per channel, in their own type."""
        widened = self.converted(weights, "f32")
        product = self.elementwise("multiply", widened, self.broadcast(scale, widened.shape, channel))
        return self.converted(product, weights.shape.element_type)

    def renamed(self, node: Node, shape: Shape) -> Node:
        return node if node.shape == shape else self._node("bitcast", shape, (node,))

    def converted(self, node: Node, element_type: str) -> Node:
        if node.shape.element_type == element_type:
            return node
        return self._node("convert", Shape(element_type, node.shape.dimensions, node.shape.minor_to_major), (node,))

    def vector(self, node: Node) -> Node:
        """`node` in f32, as one dimension."""
        node = self.converted(node, "f32")
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
        node.producers = (
            [self._origin.top_level_id] if self._origin.top_level_id is not None else list(self._origin.producers)
        )
        return node
