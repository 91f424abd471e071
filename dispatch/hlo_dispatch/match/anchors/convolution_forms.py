"""Convolution forms: the ways in which XLA writes a convolution, each with its normalizer to a `ConvSpec`.

`FORMS` holds them in the order in which they are tried; weights_gradient.py has the longest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS, PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import Dimension, View, merge_dimensions, peeled_views, with_dense_strides
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import (
    Anchor,
    Surroundings,
    converted_sums,
    first_refusal,
    sums_integers,
    unsupported_padding,
    unsupported_space,
)
from hlo_dispatch.match.anchors.convolution_spec import (
    FORWARD,
    SPACE,
    TRANSPOSED,
    ConvSpec,
    Window,
    convolution_views,
    group_dimensions,
)
from hlo_dispatch.match.anchors.reversal import peeled_window_views
from hlo_dispatch.match.anchors.weights_gradient import is_weights_gradient, read_weights_gradient
from hlo_dispatch.pattern.table import AnchorKind


def normalize_convolution(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, an HLO convolution of the entry's op kind, for the entry's kernel."""
    converts = converted_sums(node, around)
    if isinstance(converts, Refusal):
        return converts
    *others, last = (form for form in FORMS if form.op_kind == entry.op_kind)
    form = next((form for form in others if form.holds(node, around)), last)
    spec = form.read(node, around)
    return spec if isinstance(spec, Refusal) else spec.lower(node, entry, converts, around.results)


def op_kind_of_convolution(node: Node, around: Surroundings) -> str:
    """The op kind of a convolution, by the first form in which it is."""
    return next(form.op_kind for form in FORMS if form.holds(node, around))


# --- the convolution as it is -----------------------------------------------------------------------------------


def _read_forward(node: Node, around: Surroundings) -> ConvSpec | Refusal:
    """A convolution that is one. Weights that the program reverses, as it does for an input gradient, are read ahead of
    the reversal: XLA computes it, with the transpose that goes with it, in a pass of its own on one thread.
    """
    window = node.proto.window.dimensions[:]
    refusal = first_refusal(_unsupported_window(node, window), unsupported_padding(node, window))
    if refusal is not None:
        return refusal
    source, weights, destination = convolution_views(node)
    weights = _by_group(weights, node)
    is_integer = sums_integers(node, around)
    views = [] if is_integer else peeled_window_views(weights, len(window), PEEL_CONVERTS_AND_LAYOUTS, around.results)
    backwards = [(view, True) for view, is_backwards in views if is_backwards]
    policy = PEEL_CONVERTS_AND_LAYOUTS if is_integer else PEEL_CONVERTS
    forwards = [(view, False) for view in peeled_views(weights, policy, around.results)]
    return ConvSpec(
        FORWARD,
        peeled_views(source, PEEL_CONVERTS, around.results),
        backwards or forwards,
        destination.dimensions,
        _windows(window),
    )


def _windows(window: Sequence[Any]) -> list[Window]:
    return [Window(max(1, d.stride), max(1, d.window_dilation), d.padding_low, d.padding_high) for d in window]


def _by_group(weights: View, node: Node) -> View:
    """The weights (O, I, …) as (G, O/G, I, …), where there are groups."""
    groups = node.proto.feature_group_count
    if groups <= 1:
        return weights
    outputs, stride = weights.dimensions[0]
    per_group = outputs // groups
    return View(weights.node, ((groups, per_group * stride), (per_group, stride), *weights.dimensions[1:]))


def _unsupported_window(node: Node, window: Sequence[Any]) -> Refusal | None:
    """A refusal for windows that no form supports."""
    refusal = unsupported_space(node, len(window))
    if refusal is not None:
        return refusal
    if node.proto.batch_group_count > 1:
        return Refusal("batch-groups", f"batch_group_count is {node.proto.batch_group_count}", node.name)
    for dimension in window:
        if dimension.window_reversal and dimension.size > 1:
            return Refusal("window-reversal", f"a window of {dimension.size} is read backwards", node.name)
    return None


# --- batch groups as a spatial dimension --------------------------------------------------------------------------


def _has_batch_groups(node: Node, around: Surroundings) -> bool:
    return len(group_dimensions(node)) == 1


def _read_batch_groups(node: Node, around: Surroundings) -> ConvSpec | Refusal:
    """A convolution with one spatial dimension of groups. With the groups in front of the channels,

        y[n, p, g, o] = sum over k, i of x[n, p + k, g, i] · w[k, g, i, o]

    is a convolution in G feature groups.
    """
    (group,) = group_dimensions(node)
    window = [d for number, d in enumerate(node.proto.window.dimensions, SPACE) if number != group]
    refusal = first_refusal(_unsupported_window(node, window), unsupported_padding(node, window))
    if refusal is not None:
        return refusal
    if node.proto.feature_group_count > 1:
        return Refusal("batch-groups", "the convolution's batch groups are themselves in feature groups", node.name)
    source, weights, result = convolution_views(node)
    destination = _channels_by_group(result, group)
    sources = [
        merged
        for view in peeled_views(source, PEEL_CONVERTS, around.results)
        if (merged := _channels_by_group(view, group))
    ]
    if destination is None or not sources:
        sentence = "the groups and the channels of an operand do not lie behind one another"
        return Refusal("layout-unsupported", sentence, node.name)
    grouped = [
        (_groups_first(view, group), False) for view in peeled_views(weights, PEEL_CONVERTS_AND_LAYOUTS, around.results)
    ]
    return ConvSpec(FORWARD, sources, grouped, destination.dimensions, _windows(window))


def _channels_by_group(view: View, group: int) -> View | None:
    """The view (N, C, spatial…) with groups and channels merged into one dimension."""
    channels = merge_dimensions([view.dimensions[1], view.dimensions[group]])
    if channels is None:
        return None
    space = [d for number, d in enumerate(view.dimensions) if number >= SPACE and number != group]
    dimensions = (view.dimensions[0], channels, *space)
    return View(view.node, with_dense_strides(dimensions, dimensions))


def _groups_first(view: View, group: int) -> View:
    """The view (O, I, spatial…) as (G, O, I, spatial…)."""
    rest = [d for number, d in enumerate(view.dimensions) if number != group]
    return View(view.node, (view.dimensions[group], *rest))


# --- swapped operands ---------------------------------------------------------------------------------------------


class _WindowDimension(NamedTuple):
    """One spatial dimension of a window as HLO has it."""

    size: int
    stride: int
    window_dilation: int
    base_dilation: int
    padding_low: int
    padding_high: int


def _has_swapped_operands(node: Node, around: Surroundings) -> bool:
    """Whether the convolution's window is an image that slides over a kernel."""
    window = node.proto.window.dimensions[:]
    if node.proto.feature_group_count > 1 or node.proto.batch_group_count > 1 or not 1 <= len(window) <= 3:
        return False
    long = [dimension for dimension in window if dimension.size > 1]
    if _dilates_window(node):
        return all(dimension.window_reversal for dimension in long)
    # An image of one position needs no turning, and crops its kernel to the one place that they meet.
    is_cropped = any(dimension.padding_low < 0 or dimension.padding_high < 0 for dimension in window)
    is_turned = all(dimension.window_reversal for dimension in long) if long else is_cropped
    if not is_turned:
        return False
    # A program may well read a small window backwards, and then the other operand is the image and no kernel.
    weights, _, _ = convolution_views(node)
    views = peeled_window_views(weights, len(window), PEEL_CONVERTS_AND_LAYOUTS, around.results)
    return any(is_backwards for _, is_backwards in views)


def _has_swapped_forward_operands(node: Node, around: Surroundings) -> bool:
    return not _dilates_window(node) and _has_swapped_operands(node, around)


def _has_swapped_transposed_operands(node: Node, around: Surroundings) -> bool:
    return _dilates_window(node) and _has_swapped_operands(node, around)


def _dilates_window(node: Node) -> bool:
    return any(dimension.window_dilation > 1 and dimension.size > 1 for dimension in node.proto.window.dimensions[:])


def _swapped_back(node: Node) -> list[_WindowDimension]:
    """The window of a convolution whose kernel is larger than its image, so that XLA slides the image over the kernel
    instead. With K positions of weights w, S of the image x, in HLO's terms

        y[q] = sum over k of w[K-1-j] * x[S-1-k],  j * base_dilation = q * stride + k * window_dilation - low
        (w reversed by an instruction, x by the window)
             = sum over m, p of w[m] * x[p],       p * window_dilation = q * stride + m * base_dilation - low',
        low' = (K - 1) * base_dilation - (S - 1) * window_dilation + low

    which is the convolution of x by w again, with the dilations exchanged.
    """
    weights, source, _ = convolution_views(node)
    swapped: list[_WindowDimension] = []
    for number, dimension in enumerate(node.proto.window.dimensions, SPACE):
        size, kernel_size = source.sizes[number], weights.sizes[number]
        image_dilation = max(1, dimension.window_dilation) if size > 1 else 1
        kernel_dilation = max(1, dimension.base_dilation) if kernel_size > 1 else 1
        shift = (kernel_size - 1) * kernel_dilation - (size - 1) * image_dilation
        low, high = dimension.padding_low + shift, dimension.padding_high + shift
        stride = max(1, dimension.stride)
        swapped.append(_WindowDimension(kernel_size, stride, kernel_dilation, image_dilation, low, high))
    return swapped


def _read_swapped_forward_operands(node: Node, around: Surroundings) -> ConvSpec | Refusal:
    window = _swapped_back(node)
    smallest = min(min(dimension.padding_low, dimension.padding_high) for dimension in window)
    if smallest < 0:
        return Refusal("negative-padding", f"padding {smallest} crops the image", node.name)
    weights, source, result = convolution_views(node)
    return ConvSpec(
        FORWARD,
        peeled_views(source, PEEL_CONVERTS, around.results),
        _weights_and_order(weights, window, around, is_reversed=True),
        _swapped_result(result),
        _windows(window),
    )


def _read_swapped_transposed_operands(node: Node, around: Surroundings) -> ConvSpec | Refusal:
    weights, source, result = convolution_views(node)
    return _transposed(node, _swapped_back(node), (source, weights, _swapped_result(result)), around, is_reversed=True)


def _swapped_result(result: View) -> tuple[Dimension, ...]:
    outputs, images, *space = result.dimensions
    return with_dense_strides((images, outputs, *space), (images, outputs, *space))


def _weights_and_order(
    weights: View, window: Sequence[Any], around: Surroundings, *, is_reversed: bool
) -> list[tuple[View, bool]]:
    """The peeled views of weights, nearest first, and whether the kernel reads their window in reverse.

    Args:
        is_reversed: whether the kernel reads it in reverse where no instruction reverses it.
    """
    has_order = any(dimension.size > 1 for dimension in window)
    views = peeled_window_views(weights, len(window), PEEL_CONVERTS_AND_LAYOUTS, around.results)
    return [(view, has_order and is_backwards != is_reversed) for view, is_backwards in views]


# --- transposed convolutions --------------------------------------------------------------------------------------


def _is_dilated(node: Node, around: Surroundings) -> bool:
    return any(dimension.base_dilation > 1 for dimension in node.proto.window.dimensions[:])


def _read_transposed(node: Node, around: Surroundings) -> ConvSpec | Refusal:
    """A convolution of a dilated input."""
    window = node.proto.window.dimensions[:]
    refusal = _unsupported_window(node, window)
    if refusal is not None:
        return refusal
    source, weights, result = convolution_views(node)
    operands = source, _by_group(weights, node), result.dimensions
    return _transposed(node, window, operands, around, is_reversed=False)


def _transposed(
    node: Node,
    window: Sequence[Any],
    operands: tuple[View, View, tuple[Dimension, ...]],
    around: Surroundings,
    *,
    is_reversed: bool,
) -> ConvSpec | Refusal:
    """HLO: y[n, o, q] = sum over i, k of xd[n, i, q + k·dilation - low] · w[o, i, k], where xd holds x at multiples of
    the base dilation s and zeros between. With k' = K - 1 - k that is

        y[n, o, p·s + k'·dilation - low'] += x[n, i, p] · w'[o, i, k'],   low' = (K - 1)·dilation - low,   w'[k'] = w[k]

    and likewise high'. So the kernel reads the window back to front. Where the program itself has reversed the
    weights (JAX's input gradients do), the kernel reads those ahead of the reversal as they lie.

    Args:
        operands: image, weights and the result's dimensions.
        is_reversed: whether the window is read in reverse.
    """
    source, weights, destination = operands
    windows: list[Window] = []
    for dimension in window:
        stride, dilation = max(1, dimension.base_dilation), max(1, dimension.window_dilation)
        if dimension.stride > 1:
            sentence = f"the window moves by {dimension.stride} over a dilated input"
            return Refusal("base-dilation", sentence, node.name)
        reach = (dimension.size - 1) * dilation
        low, high = reach - dimension.padding_low, reach - dimension.padding_high
        # A strided convolution leaves out up to one stride of results behind the last position.
        if low < 0 or high <= -stride:
            padding = f"{dimension.padding_low}_{dimension.padding_high}"
            sentence = f"padding {padding} reaches beyond what a window of {reach + 1} turns into results"
            return Refusal("negative-padding", sentence, node.name)
        windows.append(Window(stride, dilation if dimension.size > 1 else 1, low, high))
    turned = _weights_and_order(weights, window, around, is_reversed=not is_reversed)
    return ConvSpec(TRANSPOSED, peeled_views(source, PEEL_CONVERTS, around.results), turned, destination, windows)


def _is_any(node: Node, around: Surroundings) -> bool:
    return True


class _Form(NamedTuple):
    """One form of a convolution."""

    op_kind: str
    holds: Callable[[Node, Surroundings], bool]
    read: Callable[[Node, Surroundings], ConvSpec | Refusal]


FORMS = (
    _Form("forward", sums_integers, _read_forward),
    _Form("weights_gradient", is_weights_gradient, read_weights_gradient),
    _Form("forward", _has_batch_groups, _read_batch_groups),
    _Form("forward", _has_swapped_forward_operands, _read_swapped_forward_operands),
    _Form("transposed", _has_swapped_transposed_operands, _read_swapped_transposed_operands),
    _Form("transposed", _is_dilated, _read_transposed),
    _Form("forward", _is_any, _read_forward),
)
"""A form of several that a convolution has is the first one."""
