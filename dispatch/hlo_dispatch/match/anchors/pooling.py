"""Normalizer of pooling: a reduce-window over space, maximum or sum, as (N, C, spatial…).

    y[n, c, p] = max (or sum) over k of x[n, c, p·stride + k·dilation - padding]

HLO's reduce-window has no channels: every dimension has a window, and those with a window of one element become
batch and channels. A sum is the primitive's average times the window's size. A pad ahead of the window,
as Keras and PyTorch write one, becomes padding of the window where the padding value can never be the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, PEEL_ROUNDING_AND_LAYOUTS, is_widening, peel_node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    full_view,
    merge_dimensions,
    peeled_views,
    with_dense_strides,
)
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.opcode import ANCHORS, ELEMENTWISE
from hlo_dispatch.ir.shape import FLOAT_TYPES
from hlo_dispatch.match.anchors.anchor import (
    COMPUTED_TYPES,
    Anchor,
    Surroundings,
    first_refusal,
    unsupported_padding,
    unsupported_space,
    unsupported_types,
)
from hlo_dispatch.match.anchors.padding import edges_of, is_only_for, pad_of
from hlo_dispatch.match.epilogue.integers import BOUNDS
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.match.reduction import is_reduced_further
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES
from hlo_dispatch.pattern.table import AnchorKind

_REDUCERS = {"maximum": "max", "add": "average"}
_NEVER_NEGATIVE = frozenset(("abs", "exponential", "logistic", "sqrt"))
_MAX_DEPTH = 16


def is_pooling(node: Node) -> bool:
    """Whether an instruction pools over space; XLA also writes long reductions as windows over one row."""
    if node.opcode != "reduce-window" or not node.shape.is_array or len(node.operands) != 2:
        return False
    window = node.proto.window.dimensions
    space = _space(window)
    # Batch or channels must remain, and a window along the rows alone is a stepwise reduction.
    return 0 < len(space) < len(window) and (len(space) > 1 or node.shape.minor_to_major[0] not in space)


def normalize_pooling(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, an HLO reduce-window that pools, for the pooling kernel."""
    window = node.proto.window.dimensions
    space = _space(window)
    algorithm = _algorithm(node, around.graph.module.computations)
    refusal = unsupported_types(node, COMPUTED_TYPES | INTEGER_TYPES if algorithm == "max" else COMPUTED_TYPES)
    if refusal is not None:
        return refusal
    if isinstance(algorithm, Refusal):
        return algorithm
    if algorithm == "max" and node.shape.element_type in FLOAT_TYPES:
        if is_reduced_further(node, around.graph, "maximum"):
            return Refusal("reducer-unsupported", "the maximum of more than the window would lose NaN", node.name)
    refusal = first_refusal(
        unsupported_space(node, len(space)), unsupported_padding(node, [window[number] for number in space])
    )
    if refusal is not None:
        return refusal
    padding = {number: (window[number].padding_low, window[number].padding_high) for number in space}
    narrow = _in_bf16(node, padding, algorithm)
    pooled = narrow or _past_pad(node, node.operands[0], padding, algorithm)
    operand, padding = pooled.value, pooled.padding
    if algorithm == "max" and (number := _empty_window(node, operand, padding)) is not None:
        return Refusal("empty-window", f"windows along dimension {number} lie in the padding", node.name)
    if narrow is None and not _is_cheap(operand):
        return Refusal("not-in-memory", "the fusion computes what is pooled, and never writes it", operand.name)
    source = _by_channels(full_view(operand), node, space)
    destination = _by_channels(full_view(node), node, space)
    if source is None or destination is None:
        return Refusal("layout-unsupported", "what is no space does not lie behind one another", node.name)
    count = math.prod(window[number].size for number in space)
    return Anchor(
        node=node,
        entry=entry,
        source=peeled_views(source, PEEL_BITCASTS, around.results)[-1],
        weights=None,
        destination=destination.dimensions,
        channel=1,
        multiply_adds=node.shape.elements * count,
        attributes={
            "algorithm": algorithm,
            "window": [window[number].size for number in space],
            "strides": [max(1, window[number].stride) for number in space],
            "dilations": [max(1, window[number].window_dilation) - 1 for number in space],
            "padding_low": [padding[number][0] for number in space],
            "padding_high": [padding[number][1] for number in space],
        },
        roles=("src", "", "dst"),
        covers=pooled.covers,
        leading_post_op=PostOp("eltwise", "linear", "{}", float(count)) if algorithm == "average" else None,
        formula="max_pool(x)" if algorithm == "max" else "sum_pool(x)",
    )


def _space(window: Sequence[Any]) -> list[int]:
    """The dimensions with a non-trivial window."""
    return [
        number
        for number, d in enumerate(window)
        if d.size > 1 or d.stride > 1 or d.padding_low or d.padding_high or d.base_dilation > 1
    ]


def _algorithm(node: Node, computations: Mapping[int, Any]) -> str | Refusal:
    """The kernel's algorithm for the reducer, if it starts from its neutral element."""
    called = computations[node.proto.called_computation_ids[0]]
    # Half precision is widened, reduced and rounded again for every element, which the kernel does once.
    inner = [i.opcode for i in called.instructions[:] if i.opcode not in ("parameter", "convert")]
    reducer = inner[0] if len(inner) == 1 else "more than one instruction"
    algorithm = _REDUCERS.get(reducer)
    if algorithm is None:
        return Refusal("reducer-unsupported", f"windows are reduced by {reducer}", node.name)
    start = scalar_constant(node.operands[1])
    least, _ = BOUNDS.get(node.shape.element_type, (-math.inf, math.inf))
    if start != (least if algorithm == "max" else 0.0):
        return Refusal("reducer-unsupported", f"the {reducer} starts from %{node.operands[1].name}", node.name)
    return algorithm


Padding = dict[int, tuple[int, int]]
"""Dimension → elements in front and behind."""


def _in_bf16(node: Node, padding: Padding, algorithm: str) -> Pooled | None:
    """The pooled value in bf16, where the result is rounded to bf16.

    XLA pools in single precision, and the kernel's sums are in single precision as well. Few processors pool f16.
    """
    value = node.operands[0]
    rounded = {user.shape.element_type if user.opcode == "convert" else "" for user in node.users}
    if node.is_live_out or not is_widening(value) or value.operands[0].shape.element_type != "bf16":
        return None
    found = _past_pad(node, value.operands[0], padding, algorithm) if rounded == {"bf16"} else None
    # A fusion that writes the widened value can write the original as well.
    return found if found is not None and (value.top_level_id is not None or _is_cheap(found.value)) else None


class Pooled(NamedTuple):
    """The pooled value, its whole padding, and the pad instruction where it has no other use."""

    value: Node
    padding: Padding
    covers: tuple[Node, ...]


def _past_pad(node: Node, value: Node, padding: Padding, algorithm: str) -> Pooled:
    as_it_is = Pooled(value, padding, ())
    pad, given = pad_of(value)
    if pad.opcode != "pad" or pad.has_control_predecessors:
        return as_it_is
    edges = edges_of(pad)
    if edges is None or not edges.keys() <= padding.keys():
        return as_it_is
    with_pad = padding | {n: (padding[n][0] + low, padding[n][1] + high) for n, (low, high) in edges.items()}
    filling = scalar_constant(pad.operands[1])
    if filling is None or not _is_never_seen(filling, given, algorithm):
        return as_it_is
    if algorithm == "max" and _empty_window(node, given, with_pad) is not None:
        return as_it_is
    return Pooled(given, with_pad, (pad,) if is_only_for(pad, node) else ())


def _is_never_seen(filling: float, value: Node, algorithm: str) -> bool:
    """Whether `filling` never changes the result of a window that also holds elements of `value`."""
    if algorithm == "average":
        return filling == 0.0
    return filling == -math.inf or (filling <= 0.0 and _is_never_negative(value))


def _is_never_negative(value: Node) -> bool:
    value = peel_node(value, PEEL_ROUNDING_AND_LAYOUTS)
    if value.opcode in _NEVER_NEGATIVE:
        return True
    bounds = {"maximum": value.operands, "clamp": value.operands[:1]}.get(value.opcode, ())
    return any((bound := scalar_constant(operand)) is not None and bound >= 0.0 for operand in bounds)


def _is_cheap(value: Node) -> bool:
    """Whether `value` is in memory, or is computed elementwise from such values of its size."""
    for _ in range(_MAX_DEPTH):
        if value.top_level_id is not None or value.opcode in ANCHORS:
            return True
        sources = [o for o in value.operands if o.shape.elements == value.shape.elements and o.opcode != "broadcast"]
        if not sources or value.opcode not in ELEMENTWISE | PEEL_ROUNDING_AND_LAYOUTS:
            return False
        value = sources[0]
    return False


def _empty_window(node: Node, operand: Node, padding: Padding) -> int | None:
    """A dimension along which some window lies completely in the padding."""
    for number, (low, _) in padding.items():
        d = node.proto.window.dimensions[number]
        span = (d.size - 1) * max(1, d.window_dilation) + 1
        last = (node.shape.dimensions[number] - 1) * max(1, d.stride) - low
        # A dilated window can step over a small input altogether.
        if low >= span or last >= operand.shape.dimensions[number] or (d.window_dilation > 1 and low > 0):
            return number
    return None


def _by_channels(view: View, node: Node, space: Sequence[int]) -> View | None:
    """The view as (N, C, spatial…): channels are the fastest of the dimensions that are not space."""
    rest = [number for number in node.shape.minor_to_major if number not in space]
    batch = merge_dimensions(view.dimensions[number] for number in rest[1:])
    if batch is None:
        return None
    dimensions: tuple[Dimension, ...] = (batch, view.dimensions[rest[0]], *(view.dimensions[n] for n in space))
    return View(view.node, with_dense_strides(dimensions, dimensions))
