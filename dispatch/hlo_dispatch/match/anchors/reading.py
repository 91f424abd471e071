"""Which kernel's reader describes an anchor: products, convolutions as one of four things, windows that pool."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import FlatGraph, Node
from hlo_dispatch.hlo.opcode import ANCHORS
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.anchors.batch_groups import group_dimensions, read_batch_groups
from hlo_dispatch.match.anchors.convolution import read_convolution
from hlo_dispatch.match.anchors.deconvolution import read_deconvolution
from hlo_dispatch.match.anchors.dot import read_dot
from hlo_dispatch.match.anchors.pooling import is_pooling, read_pooling
from hlo_dispatch.match.anchors.swapped import is_swapped, read_swapped
from hlo_dispatch.match.anchors.weights_gradient import is_weights_gradient, read_weights_gradient


def is_anchor(node: Node) -> bool:
    """Whether an instruction is one that kernels are looked for."""
    return node.opcode in ANCHORS or is_pooling(node)


def read_anchor(node: Node, kernels: Mapping[str, str], graph: FlatGraph) -> Anchor | Refusal:
    """Describe an anchor of `graph` for its kernel.

    Args:
        kernels: the table's anchors, by name, and their kernels.
    """
    kind = kind_of(node)
    kernel = kernels.get(kind)
    if kernel is None:
        return Refusal("kernel-unsupported", f"the table has no anchor {kind}", node.name)
    if kind == "weights_gradient":
        return read_weights_gradient(node, kernel, graph)
    if kind == "pooling":
        return read_pooling(node, kernel, graph.module.computations)
    if kind == "convolution" and group_dimensions(node):
        return read_batch_groups(node, kernel)
    if kind != "dot" and is_swapped(node):
        return read_swapped(node, kernels.get("convolution", kernel))
    return _READERS[kind](node, kernel)


_READERS = {"convolution": read_convolution, "transposed_convolution": read_deconvolution, "dot": read_dot}


def kind_of(node: Node) -> str:
    """The name of the table's anchor."""
    if node.opcode != "convolution":
        return "pooling" if node.opcode == "reduce-window" else node.opcode
    if is_weights_gradient(node):
        return "weights_gradient"
    dilated = any(dimension.base_dilation > 1 for dimension in node.proto.window.dimensions[:])
    # Groups are dilated, too.
    return "transposed_convolution" if dilated and len(group_dimensions(node)) != 1 else "convolution"
