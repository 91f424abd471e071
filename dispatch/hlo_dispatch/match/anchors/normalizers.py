"""Op kinds and their normalizers: which normalizer describes an anchor op, and for which of the table's entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.anchors.batch_groups import group_dimensions, normalize_batch_groups
from hlo_dispatch.match.anchors.concatenation import is_concatenation, normalize_concatenation
from hlo_dispatch.match.anchors.convolution import normalize_convolution
from hlo_dispatch.match.anchors.deconvolution import normalize_deconvolution
from hlo_dispatch.match.anchors.dot import normalize_dot
from hlo_dispatch.match.anchors.global_pooling import is_global_pooling, normalize_global_pooling
from hlo_dispatch.match.anchors.integer_convolution import normalize_integer_convolution
from hlo_dispatch.match.anchors.integer_product import normalize_integer_product
from hlo_dispatch.match.anchors.integer_sums import sums_integers
from hlo_dispatch.match.anchors.pooling import is_pooling, normalize_pooling
from hlo_dispatch.match.anchors.relu import is_relu, normalize_relu
from hlo_dispatch.match.anchors.scaling import is_scaling, normalize_scaling
from hlo_dispatch.match.anchors.swapped_operands import has_swapped_operands, normalize_swapped_operands
from hlo_dispatch.match.anchors.weight_only_quantized_matmul import (
    is_weight_only_quantized_matmul,
    normalize_weight_only_quantized_matmul,
)
from hlo_dispatch.match.anchors.weights_gradient import is_weights_gradient, normalize_weights_gradient
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES
from hlo_dispatch.pattern.table import AnchorKind

Entries = Mapping[str, Sequence[AnchorKind]]
"""Op kind → the table's entries for it, in the order in which they are tried."""


def by_op_kind(entries: Iterable[AnchorKind]) -> Entries:
    """A table's anchor entries by op kind, highest priority first."""
    found: dict[str, list[AnchorKind]] = {}
    for entry in sorted(entries, key=lambda entry: -entry.priority):
        found.setdefault(entry.op_kind, []).append(entry)
    return found


def is_anchor(node: Node) -> bool:
    """Whether an instruction is an anchor op."""
    return node.opcode in ANCHORS or is_pooling(node)


def is_glue_op(node: Node) -> bool:
    """Whether an instruction is a glue op: a kernel computes it only between two calls."""
    return any(is_one(node) for is_one in (is_global_pooling, is_scaling, is_relu, is_concatenation))


def op_kind_of(node: Node) -> str:
    """The op kind of an anchor op; every anchor op has exactly one."""
    if node.opcode in ("dot", "convolution") and sums_integers(node):
        return "integer" if node.opcode == "convolution" else "integer_product"
    if node.opcode == "dot":
        return "narrow_product" if is_weight_only_quantized_matmul(node) else "product"
    if node.opcode != "convolution":
        return _ONLY_OP_KINDS[node.opcode]
    if is_weights_gradient(node):
        return "weights_gradient"
    dilated = any(dimension.base_dilation > 1 for dimension in node.proto.window.dimensions[:])
    # Groups are dilated, too, and so is a kernel with gaps where the image slides over the kernel.
    return (
        "transposed" if dilated and len(group_dimensions(node)) != 1 and not has_swapped_operands(node) else "forward"
    )


_ONLY_OP_KINDS = {
    "reduce-window": "pooling",
    "reduce": "whole_window",
    "multiply": "scaling",
    "maximum": "rectifying",
    "concatenate": "concatenation",
}


def normalize_anchor(node: Node, entries: Entries, graph: FlatGraph) -> Anchor | Refusal:
    """Normalizes an anchor op of `graph` for the first of the table's entries that supports it."""
    op_kind = op_kind_of(node)
    if op_kind not in entries:
        sentence = f"the table has no anchor for a {node.opcode} of op kind {op_kind}"
        return Refusal("kernel-unsupported", sentence, node.name)
    first, *others = entries[op_kind]
    anchor = NORMALIZERS[op_kind](node, first, graph)
    if isinstance(anchor, Refusal):
        return anchor
    refusal = _unsupported_by_entry(anchor)
    for entry in others:
        if refusal is None:
            break
        anchor = replace(anchor, entry=entry)
        refusal = _unsupported_by_entry(anchor)
    return anchor if refusal is None else refusal


def _unsupported_by_entry(anchor: Anchor) -> Refusal | None:
    """A refusal if the anchor's entry does not support what its kernel would read, produce or compute."""
    entry, name = anchor.entry, anchor.node.name
    views = (
        anchor.source,
        *anchor.extra_sources,
        anchor.weights,
        anchor.scales,
        anchor.leading_post_op and anchor.leading_post_op.operand,
    )
    for view in views:
        if view in _type_checked_operands(anchor):
            continue
        if view is not None and view.element_type not in entry.dtypes:
            sentence = f"the anchor {entry.name} takes {' or '.join(entry.dtypes)}, not {view.element_type}"
            return Refusal("dtype-unsupported", sentence, view.node.name)
    if not entry.gives(anchor.result.shape.element_type):
        sentence = f"the anchor {entry.name} does not give {anchor.result.shape.element_type}"
        return Refusal("dtype-unsupported", sentence, name)
    if anchor.leading_post_op is not None and not entry.longest_chain:
        return Refusal("kernel-unsupported", f"the anchor {entry.name} may have no post-op, and needs one", name)
    return None


def _type_checked_operands(anchor: Anchor) -> tuple[View | None, ...]:
    """Operands whose types the normalizer has checked."""
    if anchor.entry.op_kind in ("integer", "integer_product"):
        return anchor.source, anchor.weights
    if anchor.entry.op_kind == "pooling" and anchor.source.element_type in INTEGER_TYPES:
        return (anchor.source,)  # the largest of integers
    return (anchor.weights,) if anchor.entry.op_kind == "narrow_product" else ()


def _normalize_forward(node: Node, entry: AnchorKind, graph: FlatGraph) -> Anchor | Refusal:
    if len(group_dimensions(node)) == 1:
        return normalize_batch_groups(node, entry)
    return normalize_swapped_operands(node, entry) if has_swapped_operands(node) else normalize_convolution(node, entry)


NORMALIZERS: dict[str, Callable[[Node, AnchorKind, FlatGraph], Anchor | Refusal]] = {
    "forward": _normalize_forward,
    "transposed": lambda node, entry, graph: normalize_deconvolution(node, entry),
    "weights_gradient": normalize_weights_gradient,
    "integer": lambda node, entry, graph: normalize_integer_convolution(node, entry),
    "integer_product": lambda node, entry, graph: normalize_integer_product(node, entry),
    "product": lambda node, entry, graph: normalize_dot(node, entry),
    "narrow_product": lambda node, entry, graph: normalize_weight_only_quantized_matmul(node, entry),
    "pooling": lambda node, entry, graph: normalize_pooling(node, entry, graph.module.computations),
    "whole_window": normalize_global_pooling,
    "scaling": lambda node, entry, graph: normalize_scaling(node, entry),
    "rectifying": lambda node, entry, graph: normalize_relu(node, entry),
    "concatenation": lambda node, entry, graph: normalize_concatenation(node, entry),
}
"""Op kind → its normalizer."""
