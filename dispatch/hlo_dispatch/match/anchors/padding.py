"""Zeros that a program puts around what a convolution reads: the convolution's own padding is the same.

XLA folds a pad into the window only where nothing stands between them, such as the widening of half precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.match.function import scalar_constant
from hlo_dispatch.match.strided import View, candidates, place_of

_SPACE = 2
"""A source's dimensions are batch, channels, then space."""
_RENAMING = frozenset(("bitcast",))


class Unpadded(NamedTuple):
    """A source ahead of its pad."""

    source: View
    attributes: dict[str, Any]
    """Of the window, its padding included."""
    covers: tuple[Node, ...]
    """The pad, where it is for the convolution alone."""


def without_pad(source: View, window: Mapping[str, Any]) -> Unpadded:
    """The source of a convolution ahead of a pad with zeros in space; as it is where there is none.

    Args:
        source: (N, C, spatial…).
        window: the attributes of the convolution's window.
    """
    pad = source.node
    as_it_is = Unpadded(source, dict(window), ())
    if pad.opcode != "pad" or pad.proto.control_predecessor_ids or scalar_constant(pad.operands[1]) != 0.0:
        return as_it_is
    edges = _edges(pad)
    places = [place_of(dimension, pad) for dimension in source.dimensions]
    if edges is None or not edges.keys() <= set(places[_SPACE:]):
        return as_it_is
    given = pad.operands[0]
    dimensions = list(source.dimensions)
    for position, place in enumerate(places):
        if place is not None:
            dimensions[position] = given.shape.places[place]
        elif dimensions[position][0] > 1:
            return as_it_is
    space = [edges.get(place, (0, 0)) if place is not None else (0, 0) for place in places[_SPACE:]]
    padding = {
        name: _sums(window[name], [edge[side] for edge in space])
        for side, name in enumerate(("padding_low", "padding_high"))
    }
    alone = len(pad.users) == 1 and not pad.is_live_out
    ahead = candidates(View(given, tuple(dimensions)), _RENAMING)[-1]
    return Unpadded(ahead, {**window, **padding}, (pad,) if alone else ())


def _edges(pad: Node) -> dict[int, tuple[int, int]] | None:
    """Dimension → zeros in front and behind, where there are any; None where the pad crops, or spreads."""
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
