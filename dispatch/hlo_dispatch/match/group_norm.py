"""Group norm: matches of a normalization over groups of channels and all positions, recognized by what it computes.

The same function has many spellings: channels are split into groups and back, means are repeated for each channel, the
variance is a difference of two means or a mean of squared differences, and the scale is multiplied with the root first
or last. So it is searched from its `rsqrt`: two sums that this one reads, and a value that is computed from them, the
array they sum up, and two vectors. Which element reads which is followed for a sample of elements, and the function is
compared with the formula in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_COPIES_AND_ROUNDING, is_widening
from hlo_dispatch.analysis.scalar_constants import logistic, scalar_constant
from hlo_dispatch.analysis.strided_view import View, full_view
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.ir.shape import FLOAT_TYPES
from hlo_dispatch.match.elementwise_points import Array, ElementwisePoints, NotElementwise, SourceElements
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.reduction import reduces, windows_before
from hlo_dispatch.pattern import Table
from hlo_dispatch.pattern.constraints import is_row_major
from hlo_dispatch.pattern.table import GroupNorm, Numerics

_FOLLOWED = ELEMENTWISE | PEEL_COPIES_AND_ROUNDING | {"bitcast", "broadcast", "reshape", "slice", "transpose"}
_TYPES = frozenset(("f32", "bf16"))
_MOST_FOLLOWED = _MOST_FOLLOWING = 64
_MOST_MEANS = 2
"""Sums that are tried as the mean of squared differences."""
_TOLERANCE = 1e-5


class GroupNormFinder:
    """Finder of one table's group norms in flat graphs; thread-safe."""

    def __init__(self, table: Table) -> None:
        self._entries = table.group_norms

    def find(self, graph: FlatGraph) -> Iterator[tuple[Node, Match]]:
        """Every group norm of `graph`, in program order."""
        for node in graph.nodes if self._entries else ():
            if node.opcode == "rsqrt" and (found := _group_norm_at(node, graph)) is not None:
                yield found.output, _match(self._entries[0], found)


class _Sizes(NamedTuple):
    images: int
    positions: int
    groups: int
    members: int
    """Channels of a group."""

    @property
    def channels(self) -> int:
        return self.groups * self.members

    def places(self, offsets: Any) -> tuple[Any, Any]:
        """Of elements at these offsets, where the sums of their groups are, and their channels."""
        channel = offsets % self.channels
        return offsets // (self.positions * self.channels) * self.groups + channel // self.members, channel


class _Found(NamedTuple):
    """A group norm, the operands of its call, and the instructions that the call replaces."""

    output: Node
    source: Node
    scale: Node
    shift: Node
    sizes: _Sizes
    epsilon: float
    has_swish: bool
    covered: tuple[Node, ...]


class _Statistics(NamedTuple):
    """The sums that a root is computed from."""

    root: Node
    total: Node
    squares: Node
    source: Node
    """What is summed up."""
    is_centred: bool
    """Whether squares are those of differences to the mean."""
    sizes: _Sizes
    epsilon: float


def _group_norm_at(root: Node, graph: FlatGraph) -> _Found | None:
    statistics = _statistics(root, graph) if root.shape.elements else None
    if statistics is None:
        return None
    source = statistics.source
    fitting = [
        node
        for node in _following(root)
        if node.shape.elements == source.shape.elements
        and node.shape.element_type == source.shape.element_type
        and is_row_major(node.shape)
    ]
    found = (_ending_in(node, statistics) for node in sorted(fitting, key=lambda node: -node.index))
    return next((one for one in found if one is not None), None)


# --- statistics -------------------------------------------------------------------------------------------------


def _statistics(root: Node, graph: FlatGraph) -> _Statistics | None:
    points = _points(root, np.zeros(1, np.int64))
    if points is None or not all(reduces(one.node, graph, "add") for one in points.sources):
        return None
    (inverse,) = points.evaluate(dict.fromkeys(points.sources, np.zeros(1)))
    epsilon = float(inverse[0]) ** -2 if np.isfinite(inverse[0]) and inverse[0] > 1 else 0.0
    for total, squares in _pairs_of_sums([one.node for one in points.sources], graph):
        summed = _summed(total, graph)
        source, sizes = _unshaped(summed), _sizes(total, summed)
        if sizes is None or sizes != _sizes(squares, _summed(squares, graph)) or not epsilon:
            continue
        if source.shape.element_type not in _TYPES or source.shape.is_dynamic:
            continue
        is_centred = _is_centred(_summed(squares, graph), source, total, sizes)
        if is_centred is not None:
            return _Statistics(root, total, squares, source, is_centred, sizes, epsilon)
    return None


def _pairs_of_sums(sums: list[Node], graph: FlatGraph) -> Iterator[tuple[Node, Node]]:
    """Pairs of sums, of which the second may be one of squares: a root reads both, or that of squared differences."""
    if len(sums) == 2:
        yield sums[0], sums[1]
        yield sums[1], sums[0]
    elif len(sums) == 1:
        for mean in itertools.islice(_sums_before(_summed(sums[0], graph), graph), _MOST_MEANS):
            yield mean, sums[0]


def _sums_before(result: Node, graph: FlatGraph) -> Iterator[Node]:
    """Sums that a result is computed from element by element, the nearest first.

    What the source of a norm is computed from, in a residual network all layers before, is not followed far.
    """
    pending = [result]
    for node in pending:  # it grows
        if node.opcode == "reduce" and reduces(node, graph, "add"):
            yield node
        elif node.opcode in _FOLLOWED and len(pending) < _MOST_FOLLOWED:
            pending += [operand for operand in node.operands if operand not in pending]


def _summed(total: Node, graph: FlatGraph) -> Node:
    """What a sum adds up, in one instruction or in XLA's tree of several."""
    windows = windows_before(total, graph, "add")
    return (windows[-1] if windows else total).operands[0]


def _unshaped(node: Node) -> Node:
    """The array in memory that has the node's elements in the same order."""
    while is_widening(node) or (node.opcode in ("bitcast", "reshape") and is_row_major(node.operands[0].shape)):
        node = node.operands[0]
    return node


def _sizes(total: Node, summed: Node) -> _Sizes | None:
    """The sizes of (images, positions, groups, members), of which positions and members are summed up."""
    if not is_row_major(summed.shape) or not is_row_major(total.shape):
        return None
    reduced = set(total.proto.dimensions[:])
    merged: list[tuple[int, bool]] = []
    for number, size in enumerate(summed.shape.dimensions):
        is_reduced = number in reduced
        if size == 1:
            continue
        if merged and merged[-1][1] == is_reduced:
            size *= merged.pop()[0]
        merged.append((size, is_reduced))
    members = merged.pop()[0] if merged and merged[-1][1] else 1
    images = merged.pop(0)[0] if len(merged) == 3 and not merged[0][1] else 1
    if [is_reduced for _, is_reduced in merged] != [True, False]:
        return None
    (positions, _), (groups, _) = merged
    return _Sizes(images, positions, groups, members)


def _is_centred(squares: Node, source: Node, total: Node, sizes: _Sizes) -> bool | None:
    """Whether the values are squares of differences to the mean; not: of the source's; None: neither."""
    offsets = _sampled(sizes)
    points = _points(squares, offsets, source)
    if points is None or not is_row_major(squares.shape):
        return None
    place, _ = sizes.places(offsets)
    x, of_group = SourceElements(source, tuple(offsets.tolist())), SourceElements(total, tuple(place.tolist()))
    values, means = np.array([-2.0, 0.5, 3.0]), np.array([0.25, 0.25, -1.5])
    count = sizes.positions * sizes.members
    if set(points.sources) == {x}:
        (found,) = points.evaluate({x: values})
        return False if _agree(found, values**2) else None
    if set(points.sources) != {x, of_group}:
        return None
    (found,) = points.evaluate({x: values, of_group: means * count})
    return True if _agree(found, (values - means) ** 2) else None


# --- what is computed from them ---------------------------------------------------------------------------------


def _following(root: Node) -> list[Node]:
    """What is computed from the root, element by element."""
    found, pending = {root}, [root]
    while pending and len(found) < _MOST_FOLLOWING:
        for user in pending.pop().users:
            if user not in found and user.opcode in _FOLLOWED and user.shape.is_array:
                found.add(user)
                pending.append(user)
    return list(found)


def _ending_in(output: Node, statistics: _Statistics) -> _Found | None:
    """The group norm whose result this is; None: it is none."""
    sizes, source = statistics.sizes, statistics.source
    offsets = _sampled(sizes)
    points = _points(output, offsets, source)
    if points is None:
        return None
    place, channel = (tuple(each.tolist()) for each in sizes.places(offsets))
    x = SourceElements(source, tuple(offsets.tolist()))
    total, squares = SourceElements(statistics.total, place), SourceElements(statistics.squares, place)
    vectors = [one for one in points.sources if one not in (x, total, squares)]
    if len(vectors) != 2 or len(points.sources) != 5 or any(one.offsets != channel for one in vectors):
        return None
    if any(one.node.shape.elements != sizes.channels for one in vectors):
        return None
    if any(one.node.shape.element_type not in FLOAT_TYPES for one in vectors):
        return None
    covered = _covered(output, {source, *(one.node for one in vectors)})
    if covered is None or not {statistics.root, statistics.total, statistics.squares} <= set(covered):
        return None
    given = _Given.of(statistics)
    for scale, shift in (vectors, vectors[::-1]):
        values = {x: given.x, total: given.total, squares: given.squares, scale: given.scale, shift: given.shift}
        (found,) = points.evaluate(values)
        for has_swish in (False, True):
            if _agree(found, given.result * logistic(given.result) if has_swish else given.result):
                return _Found(
                    output, source, scale.node, shift.node, sizes, statistics.epsilon, has_swish, covered
                )  # fmt: skip
    return None


class _Given(NamedTuple):
    """Values of the operands and sums, and of the formula."""

    x: Array
    total: Array
    squares: Array
    scale: Array
    shift: Array
    result: Array

    @classmethod
    def of(cls, statistics: _Statistics) -> _Given:
        epsilon, count = statistics.epsilon, statistics.sizes.positions * statistics.sizes.members
        variance = np.array([epsilon, 30 * epsilon, 0.1, 2.0, 1.0, 0.5])
        mean = np.array([0.01, -0.02, 0.5, -1.0, 0.0, 0.7])
        x = mean + np.array([0.02, 0.1, -0.3, 2.0, 1.0, -0.9])
        scale, shift = np.array([1.0, -0.5, 2.0, 0.75, -1.5, 0.0]), np.array([0.5, -1.0, 0.0, 1.5, -3.0, 2.0])
        result = (x - mean) / np.sqrt(variance + epsilon) * scale + shift
        squares = variance if statistics.is_centred else variance + mean**2
        return cls(x, mean * count, squares * count, scale, shift, result)


def _covered(output: Node, operands: set[Node]) -> tuple[Node, ...] | None:
    """The instructions that compute the output and nothing else; None where one of them has to wait for another."""
    found, pending = {output}, [output]
    while pending:
        for operand in pending.pop().operands:
            if operand not in found and operand not in operands and scalar_constant(operand) is None:
                found.add(operand)
                pending.append(operand)
    for node in sorted(found, key=lambda node: -node.index):  # users come before their operands
        if node is not output and (node.is_live_out or not found.issuperset(node.users)):
            found.discard(node)
    if any(node.has_control_predecessors for node in found):
        return None
    return tuple(sorted(found, key=lambda node: node.index))


# --- points -----------------------------------------------------------------------------------------------------


def _points(result: Node, offsets: Any, source: Node | None = None) -> ElementwisePoints | None:
    """The function of a result at these elements, down to sums and arrays in memory."""
    try:
        return ElementwisePoints([(result, offsets)], lambda node: node is source or node.opcode not in _FOLLOWED)
    except NotElementwise:
        return None


def _sampled(sizes: _Sizes) -> Any:
    """Offsets of elements at the borders of images, positions and groups, and of others."""
    count, channels = sizes.images * sizes.positions * sizes.channels, sizes.channels
    steps = (1, sizes.members, channels, sizes.positions * channels)
    borders = [place + step for step in steps for place in (0, channels * (sizes.positions // 2), count - 1 - step)]
    near = [place + one for place in borders for one in (-1, 0)]
    spread = (np.arange(16, dtype=np.int64) * 0x9E3779B1 + 12345) % count
    return np.unique(np.concatenate([np.array(near, np.int64) % count, spread]))


def _agree(found: Array, expected: Array) -> bool:
    return found.shape == expected.shape and bool(
        (np.abs(found - expected) <= _TOLERANCE * (1 + np.abs(expected))).all()
    )


# --- the match --------------------------------------------------------------------------------------------------


def _match(entry: GroupNorm, found: _Found) -> Match:
    sizes, kind = found.sizes, found.source.shape.element_type
    dims = [sizes.images, sizes.positions, sizes.channels]
    strides = [math.prod(dims[number + 1 :]) for number in range(len(dims))]

    def attributes() -> dict[str, Any]:
        described: dict[str, Any] = {"groups": sizes.groups, "epsilon": found.epsilon, "swish": int(found.has_swish)}
        for role in ("src", "dst"):
            described |= {f"{role}_type": kind, f"{role}_dims": dims, f"{role}_strides": strides}
        for role, node in (("scale", found.scale), ("shift", found.shift)):
            described[f"{role}_type"] = node.shape.element_type
        return described

    def numerics() -> Numerics:
        return entry.numerics[kind]

    return Match(
        entry=entry,
        node=found.output,
        kernels=(entry.kernel,),
        kernel=entry.kernel,
        operands={
            "src": View(found.source, tuple(zip(dims, strides, strict=True))),
            "scale": full_view(found.scale),
            "shift": full_view(found.shift),
        },
        results=(found.output,),
        result_shapes=(found.output.shape,),
        covered=found.covered,
        formula=f"{'swish of ' if found.has_swish else ''}group norm of {sizes.groups} groups",
        attributes=attributes,
        numerics=numerics,
    )
