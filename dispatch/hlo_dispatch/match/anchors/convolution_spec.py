"""Convolution specification: what every form of a convolution is normalized to, and its lowering to a kernel's anchor.

    y[n, o, p] = sum over c, k of x[n, c, p·stride + k·dilation - low] · w[o, c, k], per feature group

for a forward convolution; a transposed one and the gradient with respect to weights have the same window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, View, full_view
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, fully_peeled
from hlo_dispatch.match.anchors.padding import peel_pad
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES, SUM_TYPE
from hlo_dispatch.pattern.table import AnchorKind

DIRECT_CONVOLUTION_KERNEL = "own.convolution"

# oneDNN gives its sums by way of f32, which has the integers up to 2^24; sums of s8 it shifts to those of u8 first.
_MOST_EXACT_PRODUCTS = (1 << 24) // (255 * 128)

SPACE = 2
"""Number of the first spatial dimension of a convolution's views."""


class ConvolutionKind(NamedTuple):
    """What a convolution computes from what, as its kernel names it."""

    roles: tuple[str, str, str] = ("src", "weights", "dst")
    channel: int = 1
    """The number of the result's dimension along which a bias varies."""
    formula: str = ""


FORWARD = ConvolutionKind()
TRANSPOSED = ConvolutionKind(formula="conv_transpose(x, w)")
WEIGHTS_GRADIENT = ConvolutionKind(("src", "diff_dst", "diff_weights"), 0, "conv_weights_gradient(x, dy)")


class Window(NamedTuple):
    """One spatial dimension of the window."""

    stride: int
    dilation: int
    """Distance between neighbouring weights; 1: no gaps."""
    low: int
    high: int


@dataclass(frozen=True)
class ConvSpec:
    """A convolution in the terms of its kernel, before its operands' types are chosen."""

    kind: ConvolutionKind
    sources: Sequence[View]
    """Peeled views of the image (N, C, spatial…), nearest first."""
    weights: Sequence[tuple[View, bool]]
    """Peeled views of the weights (O, I, spatial…) or (G, O, I, spatial…), nearest first, and whether the kernel reads
    their window in reverse. Of a gradient: of the result's gradient (N, O, spatial…)."""
    destination: tuple[Dimension, ...]
    window: Sequence[Window]
    kernel_specific_step: Callable[..., Any] | None = None

    def lower(
        self, node: Node, entry: AnchorKind, converts: tuple[Node, ...], results: AbstractSet[Node]
    ) -> Anchor | Refusal:
        """The anchor for the kernel of `entry`.

        Args:
            converts: the instructions that convert sums of integers to numbers.
            results: results of calls, in front of which values may not exist.
        """
        source, weights = fully_peeled(self.sources, [view for view, _ in self.weights])
        if node.shape.element_type == SUM_TYPE and not {source.element_type, weights.element_type} <= INTEGER_TYPES:
            return self._unsupported_integers(node)
        products = math.prod(weights.sizes[-len(self.window) - 1 :])
        if node.shape.element_type == SUM_TYPE and not converts and products > _MOST_EXACT_PRODUCTS:
            sentence = f"sums of {products} products need more bits than the kernel's f32 has"
            return Refusal("dtype-unsupported", sentence, node.name)
        is_reversed = dict(self.weights)[weights]
        attributes: dict[str, Any] = {
            "strides": [window.stride for window in self.window],
            "dilations": [window.dilation - 1 for window in self.window],
            "padding_low": [window.low for window in self.window],
            "padding_high": [window.high for window in self.window],
        }
        covers: tuple[Node, ...] = ()
        if self.kind is FORWARD:
            source, attributes, covers = peel_pad(source, attributes, node, results)
        if is_reversed or self.kind is not FORWARD:
            attributes["weights_reversed"] = int(is_reversed)
        return Anchor(
            node=node,
            entry=entry,
            source=source,
            weights=weights,
            destination=self.destination,
            channel=self.kind.channel,
            multiply_adds=self._multiply_adds(source, weights),
            attributes=attributes,
            roles=self.kind.roles,
            covers=(*covers, *converts),
            formula=self.kind.formula,
            kernel_specific_step=self.kernel_specific_step,
            value=converts[-1] if converts else None,
            alternative_kernels=self._alternative_kernels(entry, source, weights, attributes),
        )

    def _alternative_kernels(
        self, entry: AnchorKind, source: View, weights: View, attributes: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """The entry's, without the direct convolution where it is no depthwise one with gaps in the window or in NCHW:
        of those alone oneDNN has nothing but products and copies to another layout.
        """
        if DIRECT_CONVOLUTION_KERNEL not in entry.alternative_kernels:
            return entry.alternative_kernels
        is_depthwise = len(weights.sizes) > len(source.sizes) and weights.sizes[1] == weights.sizes[2] == 1
        if is_depthwise and source.element_type == "f32" and weights.sizes[0] > 1:
            if any(attributes["dilations"]) or source.strides[1] != 1 or self.destination[1][1] != 1:
                return entry.alternative_kernels
        return tuple(kernel for kernel in entry.alternative_kernels if kernel != DIRECT_CONVOLUTION_KERNEL)

    def _multiply_adds(self, source: View, weights: View) -> int:
        window = math.prod(weights.sizes[-len(self.window) :])
        if self.kind is TRANSPOSED:
            return math.prod(source.sizes) * window * weights.sizes[-len(self.window) - 2]
        of_each_result = weights.sizes[0] if self.kind is WEIGHTS_GRADIENT else weights.sizes[-len(self.window) - 1]
        return math.prod(size for size, _ in self.destination) * of_each_result * window

    def _unsupported_integers(self, node: Node) -> Refusal:
        kinds = {view.element_type for view, _ in self.weights} & INTEGER_TYPES
        if kinds and any(view.element_type in INTEGER_TYPES for view in self.sources):
            return Refusal("dtype-unsupported", f"weights of {', '.join(kinds)} no kernel takes", node.name)
        sentence = "an operand's integers do not lie as the convolution reads them"
        return Refusal("layout-unsupported", sentence, node.name)


def convolution_views(node: Node) -> tuple[View, View, View]:
    """Strided views of operands and result as (N, C, spatial…), (O, I, spatial…) and (N, O, spatial…)."""
    numbers = node.proto.convolution_dimension_numbers
    source, weights = (full_view(operand) for operand in node.operands)
    return (
        _pick(source, numbers.input_batch_dimension, numbers.input_feature_dimension, numbers.input_spatial_dimensions),
        _pick(
            weights,
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_spatial_dimensions,
        ),
        _pick(
            full_view(node),
            numbers.output_batch_dimension,
            numbers.output_feature_dimension,
            numbers.output_spatial_dimensions,
        ),
    )


def _pick(view: View, first: int, second: int, spatial: Sequence[int]) -> View:
    return View(view.node, tuple([view.dimensions[number] for number in (first, second, *spatial[:])]))


def group_dimensions(node: Node) -> tuple[int, ...]:
    """The numbers of the dimensions of a convolution's views (N, C, spatial…) that are groups.

    XLA:CPU computes no batch groups. It moves the G groups of the batch into a spatial dimension of G positions,
    dilates that by G and has a window of G weights move over it by G - 1. Position k of result g meets place
    g·(G - 1) + k, a multiple of G only for k = g, and there lies input g.
    """
    window = node.proto.window.dimensions[:]
    if all(dimension.base_dilation <= 1 for dimension in window):
        return ()
    source, _, result = convolution_views(node)
    sizes = zip(source.sizes[SPACE:], result.sizes[SPACE:], window, strict=True)
    return tuple(number for number, entry in enumerate(sizes, SPACE) if _is_group(*entry))


def _is_group(size: int, result: int, window: Any) -> bool:
    """Whether result g along this dimension depends on input g and window position g alone."""
    return (
        size > 1
        and size == result == window.size == window.base_dilation
        and max(1, window.stride) == size - 1
        and max(1, window.window_dilation) == 1
        and window.padding_low == window.padding_high == 0
        and not window.window_reversal
    )
