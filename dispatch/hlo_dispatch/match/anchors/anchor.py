"""Anchors: an anchor op in its kernel's canonical form: strided views of operands, result dimensions, attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import Dimension, View, full_view, peeled_views
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.schema import WindowDimensionProto
from hlo_dispatch.ir.shape import HALF_TYPES
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.pattern.algorithms import DTYPES
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES, INTEGER_WEIGHTS, SUM_TYPE
from hlo_dispatch.pattern.table import AnchorKind
from hlo_dispatch.process.machine import Machine

COMPUTED_TYPES = frozenset(DTYPES)
"""Element types that the normalizers accept; the table's entry restricts them to those of its kernel."""


@dataclass(eq=False)  # not frozen: that assigns each field by a call, and a module has many of them
class Anchor:
    """An anchor op (convolution, dot, pooling, …) in its kernel's canonical form."""

    node: Node
    entry: AnchorKind
    """The table's entry, which declares element types and the supported epilogue."""
    source: View
    weights: View | None
    """None: the kernel has no second operand."""
    destination: tuple[Dimension, ...]
    """The result's dimensions in the kernel's order, over the anchor's buffer."""
    channel: int
    """The number of the dimension of `destination` along which a bias varies."""
    multiply_adds: int
    """Arithmetic: multiply-add pairs (of a pooling: elements that its windows read)."""
    attributes: dict[str, Any] = field(default_factory=dict[str, Any], hash=False, compare=False)
    """Kernel attributes besides dimensions and types (strides, padding …)."""
    roles: tuple[str, str, str] = ("src", "weights", "dst")
    """Prefixes of the kernel's attributes for source, weights and result."""
    covers: tuple[Node, ...] = ()
    """Instructions besides `node` that the kernel computes too, and that have no other users."""
    leading_post_op: PostOp | None = None
    """The post-op that the primitive needs in front of any epilogue."""
    formula: str = ""
    """The formula, for people; empty: it follows from the opcode."""
    kernel_specific_step: Callable[..., Any] | None = field(default=None, hash=False, compare=False)
    """Set where the kernel has no post-ops: (value, destination, steps so far, is_inner) → the Step with which the
    kernel computes the value's user too, or None. `is_inner` tells whether a value has a single user."""
    value: Node | None = None
    """The kernel's result, where that is not the node's own value: the last of `covers`."""
    extra_sources: tuple[View, ...] = ()
    """Further sources, which the kernel reads like the source."""
    scales: View | None = None
    """Scales of the weights, (groups, channels); a group is a part of the contracted dimension."""
    zeros: View | None = None
    """What is subtracted from the weights before they are scaled, likewise."""
    alternative_kernels: tuple[str, ...] | None = None
    """Those of the entry's that take this anchor; None: all of them."""
    unsliced: Anchor | None = field(default=None, hash=False, compare=False)
    """The anchor for the full value of the node, where this one computes a slice."""

    @property
    def kernel(self) -> str:
        """Name in the table's kernels: "onednn.convolution" …"""
        return self.entry.kernel

    @property
    def operands(self) -> dict[str, View]:
        """The kernel's operands without any epilogue, by their roles, in order."""
        source, weights, _ = self.roles
        operands = {source: self.source}
        for number, view in enumerate(self.extra_sources, 1):
            operands[f"{source}_{number}"] = view
        for role, view in ((weights, self.weights), ("scales", self.scales), ("zeros", self.zeros)):
            if view is not None:
                operands[role] = view
        return operands

    @property
    def result(self) -> Node:
        """The kernel's result without any epilogue."""
        return self.node if self.value is None else self.value


def fully_peeled(sources: Sequence[View], weight_views: Sequence[View]) -> tuple[View, View]:
    """The furthest view of each operand (views are sorted nearest first) in the narrowest type that both have.

    XLA:CPU converts bf16 operands to f32 ahead of a dot or convolution; the kernel multiplies the bf16 values
    themselves with f32 sums, which is the same arithmetic with half the memory traffic. Likewise s8 and u8 with s32
    sums.
    """
    if len(sources) == len(weight_views) == 1:
        return sources[0], weight_views[0]
    for kinds, of_weights in (*(((kind,), kind) for kind in HALF_TYPES), (INTEGER_TYPES, INTEGER_WEIGHTS)):
        narrow_source = [view for view in sources if view.element_type in kinds]
        narrow_weights = [view for view in weight_views if view.element_type == of_weights]
        if narrow_source and narrow_weights:
            return narrow_source[-1], narrow_weights[-1]
    return _same_type(sources), _same_type(weight_views)


def _same_type(views: Sequence[View]) -> View:
    return [view for view in views if view.element_type == views[0].element_type][-1]


class Surroundings(NamedTuple):
    """What a normalizer knows besides the instruction."""

    graph: FlatGraph
    machine: Machine
    """For which the decisions are made."""
    results: AbstractSet[Node] = frozenset()
    """Results of dispatched calls, in front of which values may not exist: nothing peels them."""


def first_refusal(*refusals: Refusal | None) -> Refusal | None:
    """The first Refusal among the arguments; it has no truth value, so `or` does not find it."""
    return next((refusal for refusal in refusals if refusal is not None), None)


def unsupported_types(node: Node, types: AbstractSet[str] = COMPUTED_TYPES) -> Refusal | None:
    """A refusal if an operand or the result has a type or size that no kernel supports."""
    for value in (node, *node.operands):
        shape = value.shape
        if shape.element_type not in types:
            return Refusal("dtype-unsupported", f"{shape} is not f32, bf16 or f16", value.name)
        if shape.is_dynamic:
            return Refusal("dynamic-shape", f"{shape} has a dimension known only at run time", value.name)
        if shape.elements == 0:
            return Refusal("zero-size", f"{shape} has no elements", value.name)
    if node.has_control_predecessors:
        return Refusal("control-dependency", "the instruction has control predecessors", node.name)
    algorithm = node.proto.precision_config.algorithm
    if algorithm:
        return Refusal("precision-unsupported", f"dot algorithm {algorithm} is requested", node.name)
    return None


def unsupported_space(node: Node, count: int) -> Refusal | None:
    """A refusal if no kernel has this number of spatial dimensions."""
    if 1 <= count <= 3:
        return None
    return Refusal("rank-unsupported", f"{count} spatial dimensions; the kernel takes 1 to 3", node.name)


def unsupported_padding(node: Node, window: Iterable[WindowDimensionProto]) -> Refusal | None:
    """A refusal for a dilated or cropped input."""
    for dimension in window:
        if dimension.base_dilation > 1:
            return Refusal("base-dilation", f"the input is dilated by {dimension.base_dilation}", node.name)
        if dimension.padding_low < 0 or dimension.padding_high < 0:
            padding = f"{dimension.padding_low}_{dimension.padding_high}"
            return Refusal("negative-padding", f"padding {padding} crops the input", node.name)
    return None


def sums_integers(node: Node, around: Surroundings) -> bool:
    """Whether both operands are int8, widened or not, and the result holds their s32 sums."""
    if node.shape.element_type != SUM_TYPE:
        return False
    peeled = (peeled_views(full_view(operand), PEEL_CONVERTS_AND_LAYOUTS, around.results) for operand in node.operands)
    return all(any(view.element_type in INTEGER_TYPES for view in views) for views in peeled)


def converted_sums(node: Node, around: Surroundings) -> tuple[Node, ...] | Refusal:
    """The instructions that convert sums of integers to f32, the last one a convert; empty: it sums numbers, or its
    sums are used as integers.

    Quantized networks compute such sums, which are exact, followed by an ordinary epilogue chain (scales, bias,
    residual, activation, rounding to int8). A kernel accumulates exactly as well, and rounds where the convert does.
    """
    is_integer = sums_integers(node, around)
    numbers = COMPUTED_TYPES | {"f64"} if node.opcode == "convolution" else COMPUTED_TYPES
    refusal = unsupported_types(node, INTEGER_TYPES | {SUM_TYPE} if is_integer else numbers)
    if refusal is not None or not is_integer:
        return () if refusal is None else refusal
    found: list[Node] = []
    value = node
    while value is node or value.opcode == "bitcast":
        if len(value.users) != 1 or value.is_live_out:
            break
        (value,) = value.users
        found.append(value)
    source = found[-2] if len(found) > 1 else node
    is_number = value.opcode == "convert" and value.shape.element_type == "f32"
    if not is_number or value.shape.strides != source.shape.strides:
        return ()
    for value in found:
        if value.has_control_predecessors:
            return Refusal("control-dependency", "the instruction has control predecessors", value.name)
    return tuple(found)
