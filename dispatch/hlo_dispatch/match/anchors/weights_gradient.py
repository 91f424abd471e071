"""Normalizer of convolution gradients with respect to weights.

    dw[o, i, k] = sum over n, p of x[n, i, p·stride + k·dilation - low] · dy[n, o, p]

JAX writes it as a convolution of x by dy: its batch is x's features i, its features are x's batch n, its window
is all of dy, its window dilation the forward stride and its stride the forward dilation. XLA:CPU transposes x
and dy into that shape; the kernel reads them in front of that. Groups have three encodings: batch groups;
one more spatial dimension in which result g meets only input g and window position g (XLA's expansion of batch
groups); and a diagonal cut out of a dense gradient (diagonal.py). Gradients of each sample of a batch are in feature
groups, one for each image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import Dimension, View, merge_dimensions, with_dense_strides
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.schema import WindowDimensionProto
from hlo_dispatch.match.anchors.anchor import Surroundings, unsupported_space
from hlo_dispatch.match.anchors.convolution_spec import (
    SPACE,
    WEIGHTS_GRADIENT,
    ConvSpec,
    Window,
    convolution_views,
    group_dimensions,
)
from hlo_dispatch.match.anchors.diagonal import diagonal_step
from hlo_dispatch.match.anchors.reversal import ReversedDimensions, peeled_views_with_reversal, reversing_step
from hlo_dispatch.match.epilogue.steps import Step

_BATCH, _CHANNELS = 0, 1


@dataclass(frozen=True)
class _Roles:
    """The convolution's operands as (N, C, spatial…) of x, (N, O, spatial…) of dy, and (O, I, spatial…) of dw."""

    source: View
    gradient: View
    weights: View
    window: tuple[WindowDimensionProto, ...]
    """One entry per dimension of space, without those that are groups."""
    groups: tuple[int, ...]
    """The dimensions of all three that are groups encoded as space."""


def is_weights_gradient(node: Node, around: Surroundings) -> bool:
    """Whether a convolution is better computed as a gradient with respect to weights; any convolution can be.

    It is a gradient where the window is at least as large as the result in space, and the convolution's feature
    dimension has the memory order of a batch: slower than space, and slower than the convolution's batch dimension.
    """
    if node.shape.element_type == "f64":
        return False  # no kernel computes it as one
    # Groups encoded as space are as many on both sides, so they do not matter here.
    numbers = node.proto.convolution_dimension_numbers
    window = math.prod(dimension.size for dimension in node.proto.window.dimensions[:])
    if window < math.prod(node.shape.dimensions[number] for number in numbers.output_spatial_dimensions[:]):
        return False
    roles = _roles(node)
    window = math.prod(dimension.size for dimension in roles.window)
    if window < math.prod(size for size, _ in _space(roles.weights, roles)) or window == 1:
        return False
    furthest_source, _ = peeled_views_with_reversal(roles.source, PEEL_CONVERTS_AND_LAYOUTS, around.results)[-1]
    batch, channels = furthest_source.dimensions[_BATCH], furthest_source.dimensions[_CHANNELS]
    if batch[0] == 1:
        return channels[0] > 1 or node.proto.batch_group_count > 1 or _has_stride_backwards(roles.window)
    inside = [d for d in (channels, *_space(furthest_source, roles)) if d[0] > 1]
    return all(stride < batch[1] for _, stride in inside)


def _has_stride_backwards(window: tuple[WindowDimensionProto, ...]) -> bool:
    """Whether a dilated window is read backwards: XLA swapped the operands of a gradient, whose stride that is."""
    return any(d.window_reversal and d.window_dilation > 1 for d in window if d.size > 1)


def read_weights_gradient(node: Node, around: Surroundings) -> ConvSpec | Refusal:
    """A convolution that is a gradient with respect to weights."""
    roles = _roles(node)
    refusal = _unsupported(node, roles)
    if refusal is not None:
        return refusal
    backwards = any(dimension.window_reversal and dimension.size > 1 for dimension in roles.window)
    window = _windows(node, roles, backwards=backwards)
    if isinstance(window, Refusal):
        return window
    samples = node.proto.feature_group_count
    sources = _candidate_views(roles.source, roles, around.results, backwards=backwards, by_sample=samples > 1)
    gradients = [(view, backwards) for view in _candidate_views(roles.gradient, roles, around.results, backwards=False)]
    if not sources or not gradients:
        if backwards and _candidate_views(roles.source, roles, around.results, backwards=False):
            return Refusal("window-reversal", "only one of the operands is read backwards", node.name)
        sentence = "the groups and the channels of an operand do not lie behind one another"
        return Refusal("layout-unsupported", sentence, node.name)
    groups = max(1, node.proto.batch_group_count, samples)
    (outputs, output_stride), inputs, *_ = roles.weights.dimensions
    destination = [(outputs // groups, output_stride), inputs, *_space(roles.weights, roles)]
    if roles.groups:
        destination.insert(0, roles.weights.dimensions[roles.groups[0]])
    elif groups > 1:
        destination.insert(0, (groups, outputs // groups * output_stride))
    steps = _KernelSpecificStep(around.graph.module.computations, len(window), int(backwards))
    dense = with_dense_strides(destination, destination)
    return ConvSpec(WEIGHTS_GRADIENT, sources, gradients, dense, window, steps)


@dataclass(frozen=True)
class _KernelSpecificStep:
    """Epilogue steps that the kernel supports: reversal of the window, and extraction of the diagonal."""

    computations: Mapping[int, Any]
    window: int
    """Number of window dimensions."""
    backwards: int
    """weights_reversed of the anchor."""

    def __call__(
        self,
        value: Node,
        destination: tuple[Dimension, ...],
        steps: Sequence[Step],
        is_inner: Callable[[Node], bool],
    ) -> Step | None:
        backwards = self.backwards
        for step in steps:
            backwards = step.attributes.get("weights_reversed", backwards)
        step = reversing_step(value, destination, self.window, backwards)
        if step is None and len(destination) == 2 + self.window:  # one dimension more is groups already
            step = diagonal_step(self.computations, value, destination, is_inner)
        return step


def _roles(node: Node) -> _Roles:
    lhs, rhs, result = convolution_views(node)
    window = tuple(node.proto.window.dimensions)
    groups = group_dimensions(node)

    def swapped(view: View) -> View:
        return View(view.node, (view.dimensions[1], view.dimensions[0], *view.dimensions[2:]))

    return _Roles(
        swapped(lhs),
        swapped(rhs),
        swapped(result),
        tuple(dimension for number, dimension in enumerate(window, SPACE) if number not in groups),
        groups,
    )


def _space(view: View, roles: _Roles) -> list[Dimension]:
    return [d for number, d in enumerate(view.dimensions) if number >= SPACE and number not in roles.groups]


def _unsupported(node: Node, roles: _Roles) -> Refusal | None:
    name = node.name
    refusal = unsupported_space(node, len(roles.window))
    if refusal is not None:
        return refusal
    samples = node.proto.feature_group_count
    if len(roles.groups) + (node.proto.batch_group_count > 1) + (samples > 1) > 1:
        return Refusal("batch-groups", "the gradient's groups are themselves in groups", name)
    if samples > 1 and roles.source.sizes[_BATCH] > samples:
        images = roles.source.sizes[_BATCH] // samples
        return Refusal("batch-groups", f"each of the {samples} gradients is a sum over {images} images", name)
    for dimension in roles.window:
        if dimension.base_dilation > 1:
            return Refusal("base-dilation", f"the input is dilated by {dimension.base_dilation}", name)
    long = [dimension for dimension in roles.window if dimension.size > 1]
    if any(dimension.window_reversal != long[0].window_reversal for dimension in long):
        return Refusal("window-reversal", "the window is read backwards in one dimension and forwards in another", name)
    return None


def _windows(node: Node, roles: _Roles, *, backwards: bool) -> list[Window] | Refusal:
    """The forward convolution's window."""
    windows: list[Window] = []
    sizes = (_space(view, roles) for view in (roles.source, roles.gradient, roles.weights))
    for dimension, (size, _), (results, _), (kernel, _) in zip(roles.window, *sizes, strict=True):
        dilation = max(1, dimension.stride) if kernel > 1 else 1
        low, stride = dimension.padding_low, max(1, dimension.window_dilation)
        high = (results - 1) * stride + (kernel - 1) * dilation + 1 - size - low
        if backwards:
            low, high = high, low
        if low < 0:
            return Refusal("negative-padding", f"padding {low} crops the input", node.name)
        if results == 1:  # then the stride means nothing, and may be as long as the input
            stride = max(stride, 1 - high)
        # The forward convolution does not read positions behind the last full stride either.
        if high <= -stride:
            return Refusal("negative-padding", f"the last {-high} positions of the input are not used", node.name)
        windows.append(Window(stride, dilation, low, high))
    return windows


def _candidate_views(
    view: View, roles: _Roles, results: AbstractSet[Node], *, backwards: bool, by_sample: bool = False
) -> list[View]:
    """The operand's peeled views, nearest first, with groups and channels merged into one dimension.

    Args:
        backwards: whether its space lies back to front to what the convolution reads.
        by_sample: whether each image is a group.
    """
    numbers = [n for n in range(SPACE, len(view.dimensions)) if n not in roles.groups]
    expected = ReversedDimensions(n for n in numbers if backwards and view.dimensions[n][0] > 1)
    found: list[View] = []
    for candidate, turned in peeled_views_with_reversal(view, PEEL_CONVERTS_AND_LAYOUTS, results):
        dimensions = candidate.dimensions
        groups = [dimensions[_BATCH]] if by_sample else [dimensions[number] for number in roles.groups]
        channels = merge_dimensions([dimensions[_CHANNELS], *groups])
        if channels is not None and turned == expected:
            batch = (1, 1) if by_sample else dimensions[_BATCH]
            merged = (batch, channels, *(dimensions[number] for number in numbers))
            found.append(View(candidate.node, with_dense_strides(merged, merged)))
    return found
