"""Padding peeling: a pad with zeros in front of a convolution becomes the convolution's own padding.

XLA folds a pad into the window only where they are adjacent, with no widening of half precision between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, is_widening
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, dimension_number, peeled_views

_SPACE = 2
"""A source's dimensions are batch, channels, then space."""


class PeeledPad(NamedTuple):
    """A source in front of its pad."""

    source: View
    attributes: dict[str, Any]
    """Attributes of the window, with the pad added to its padding."""
    covers: tuple[Node, ...]
    """The pad, where it is for the convolution alone."""


def peel_pad(source: View, window: Mapping[str, Any], convolution: Node, results: AbstractSet[Node]) -> PeeledPad:
    """The source of a convolution in front of a pad with zeros in space; unchanged where there is none.

    Args:
        source: (N, C, spatial…).
        window: the attributes of the convolution's window.
        results: results of calls, in front of which values may not exist.
    """
    pad, given = pad_of(source.node)
    as_it_is = PeeledPad(source, dict(window), ())
    if pad.opcode != "pad" or pad.has_control_predecessors or scalar_constant(pad.operands[1]) != 0.0:
        return as_it_is
    edges = edges_of(pad)
    numbers = [dimension_number(dimension, pad) for dimension in source.dimensions]
    if edges is None or not edges.keys() <= set(numbers[_SPACE:]):
        return as_it_is
    dimensions = list(source.dimensions)
    for position, number in enumerate(numbers):
        if number is not None:
            dimensions[position] = given.shape.strided_dimensions[number]
        elif dimensions[position][0] > 1:
            return as_it_is
    space = [edges.get(number, (0, 0)) if number is not None else (0, 0) for number in numbers[_SPACE:]]
    padding = {
        name: _sums(window[name], [edge[side] for edge in space])
        for side, name in enumerate(("padding_low", "padding_high"))
    }
    ahead = peeled_views(View(given, tuple(dimensions)), PEEL_BITCASTS, results)[-1]
    return PeeledPad(ahead, {**window, **padding}, (pad,) if is_only_for(pad, convolution) else ())


def pad_of(value: Node) -> tuple[Node, Node]:
    """The pad that produces a value, if any, and the pad's operand in the value's own type.

    On jax 0.10 XLA pads half precision between a widening and a rounding.
    """
    pad = value.operands[0] if value.opcode == "convert" and value.operands[0].opcode == "pad" else value
    given = pad.operands[0] if pad.operands else pad
    if pad is value:
        return pad, given
    is_round_trip = is_widening(given) and given.operands[0].shape.element_type == value.shape.element_type
    return (pad, given.operands[0]) if is_round_trip else (value, value)


def is_only_for(value: Node, reader: Node) -> bool:
    """Whether a value, and the values between it and `reader`, have no other users."""
    while value is not reader:
        if value.is_live_out or len(value.users) != 1:
            return False
        value = value.users[0]
    return True


def edges_of(pad: Node) -> dict[int, tuple[int, int]] | None:
    """Dimension → zeros in front and behind, where there are any; None: the pad crops, or has interior padding."""
    edges: dict[int, tuple[int, int]] = {}
    for number, dimension in enumerate(pad.proto.padding_config.dimensions):
        low, high = dimension.edge_padding_low, dimension.edge_padding_high
        if low < 0 or high < 0 or dimension.interior_padding:
            return None
        if low or high:
            edges[number] = low, high
    return edges


def _sums(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(first, second, strict=True)]
