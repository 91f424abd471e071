"""Op kinds and their normalizers: which normalizer describes an anchor op, and for which of the table's entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings
from hlo_dispatch.match.anchors.concatenation import is_concatenation, normalize_concatenation
from hlo_dispatch.match.anchors.convolution_forms import normalize_convolution, op_kind_of_convolution
from hlo_dispatch.match.anchors.dot import normalize_dot
from hlo_dispatch.match.anchors.global_pooling import is_global_pooling, normalize_global_pooling
from hlo_dispatch.match.anchors.pooling import is_pooling, normalize_pooling
from hlo_dispatch.match.anchors.relu import is_relu, normalize_relu
from hlo_dispatch.match.anchors.scaling import is_scaling, normalize_scaling
from hlo_dispatch.match.anchors.weight_only_quantized_matmul import (
    is_weight_only_quantized_matmul,
    normalize_weight_only_quantized_matmul,
)
from hlo_dispatch.match.anchors.wrapping_product import is_wrapping_product, normalize_wrapping_product
from hlo_dispatch.pattern.op_kinds import ANCHOR_OPCODES, INTEGER_TYPES, QUANTIZED_WEIGHT_TYPES
from hlo_dispatch.pattern.table import AnchorKind

Entries = Mapping[str, Sequence[AnchorKind]]
"""Op kind → the table's entries for it, in the order in which they are tried."""


def by_op_kind(entries: Iterable[AnchorKind]) -> Entries:
    """A table's anchor entries by op kind, highest priority first."""
    found: dict[str, list[AnchorKind]] = {}
    for entry in sorted(entries, key=lambda entry: -entry.priority):
        found.setdefault(entry.op_kind, []).append(entry)
    return found


def has_op_kind(node: Node) -> bool:
    """Whether an instruction is an anchor op or a glue op."""
    condition = _CONDITIONS.get(node.opcode)
    return node.opcode in ANCHOR_OPCODES if condition is None else condition(node)


def op_kind_of(node: Node, around: Surroundings) -> str:
    """The op kind of an anchor op; every anchor op has exactly one."""
    if node.opcode == "convolution":
        return op_kind_of_convolution(node, around)
    if node.opcode != "dot":
        return ANCHOR_OPCODES[node.opcode][0]  # the only one
    if is_wrapping_product(node, around):
        return "wrapping_product"
    is_quantized = around.graph.has_narrow_integers and is_weight_only_quantized_matmul(node, around)
    return "narrow_product" if is_quantized else "product"


def normalize_anchor(node: Node, entries: Entries, around: Surroundings) -> Anchor | Refusal:
    """Normalizes an anchor op for the first of the table's entries that supports it."""
    op_kind = op_kind_of(node, around)
    if op_kind not in entries:
        sentence = f"the table has no anchor for a {node.opcode} of op kind {op_kind}"
        return Refusal("kernel-unsupported", sentence, node.name)
    first, *others = entries[op_kind]
    anchor = NORMALIZERS[op_kind](node, first, around)
    if isinstance(anchor, Refusal):
        return anchor
    refusal = _unsupported_by_entry(anchor)
    if refusal is None:
        return anchor
    alternatives = (replace(anchor, entry=entry) for entry in others)
    return next((found for found in alternatives if _unsupported_by_entry(found) is None), refusal)


def _unsupported_by_entry(anchor: Anchor) -> Refusal | None:
    """A refusal if the anchor's entry does not support what its kernel would read, produce or compute."""
    entry, node = anchor.entry, anchor.node
    sources = (anchor.source, *anchor.extra_sources)
    others = (anchor.weights, anchor.scales, anchor.zeros, anchor.leading_post_op and anchor.leading_post_op.operand)
    for view in (*sources, *others):
        if view is None:
            continue
        kind = view.node.shape.element_type
        if kind in entry.dtypes or entry.takes(kind):
            continue
        if view in sources or kind not in _CHECKED_TYPES:
            sentence = f"the anchor {entry.name} takes {' or '.join(entry.dtypes)}, not {kind}"
            return Refusal("dtype-unsupported", sentence, view.node.name)
    if not entry.gives(anchor.result.shape.element_type):
        sentence = f"the anchor {entry.name} does not give {anchor.result.shape.element_type}"
        return Refusal("dtype-unsupported", sentence, node.name)
    if anchor.leading_post_op is not None and not entry.longest_chain:
        return Refusal("kernel-unsupported", f"the anchor {entry.name} may have no post-op, and needs one", node.name)
    return None


_CHECKED_TYPES = INTEGER_TYPES | QUANTIZED_WEIGHT_TYPES
"""Element types of operands that the normalizers let pass only where the op kind's kernels read them."""


_CONDITIONS: dict[str, Callable[[Node], bool]] = {
    "reduce-window": is_pooling,
    "reduce": is_global_pooling,
    "multiply": is_scaling,
    "maximum": is_relu,
    "concatenate": is_concatenation,
}
"""Opcode → the condition under which an instruction has an op kind, where there is one."""

NORMALIZERS: dict[str, Callable[[Node, AnchorKind, Surroundings], Anchor | Refusal]] = {
    "forward": normalize_convolution,
    "transposed": normalize_convolution,
    "weights_gradient": normalize_convolution,
    "wrapping_product": normalize_wrapping_product,
    "product": normalize_dot,
    "narrow_product": normalize_weight_only_quantized_matmul,
    "pooling": normalize_pooling,
    "whole_window": normalize_global_pooling,
    "scaling": normalize_scaling,
    "rectifying": normalize_relu,
    "concatenation": normalize_concatenation,
}
"""Op kind → its normalizer."""
