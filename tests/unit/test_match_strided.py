"""Strided views as (size, stride) pairs, against NumPy's own strides of the same arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.analysis.peeling import PEEL_LAYOUTS, PEEL_REVERSALS, PEEL_WIDENING
from hlo_dispatch.analysis.strided_view import (
    DimensionSplit,
    View,
    follow,
    full_view,
    merge_dimensions,
    peel,
    peel_or_split,
    peeled_views,
    project_dimensions,
    rebase_dimensions,
    split_dimension,
    with_dense_strides,
)
from hlo_dispatch.ir.shape import Shape
from matching import flattened, node


def places(dimensions) -> np.ndarray:
    """The buffer position of every element that the dimensions walk over."""
    total = np.zeros([size for size, _ in dimensions], int)
    for number, (size, stride) in enumerate(dimensions):
        total += (np.arange(size) * stride).reshape([-1 if n == number else 1 for n in range(len(dimensions))])
    return total


def own(shape: Shape) -> list[tuple[int, int]]:
    """The shape's dimensions as (size, stride)."""
    return list(zip(shape.dimensions, shape.strides, strict=True))


@st.composite
def shapes(draw, minimum_rank: int = 1) -> Shape:
    dimensions = tuple(draw(st.lists(st.integers(1, 4), min_size=minimum_rank, max_size=4)))
    return Shape("f32", dimensions, tuple(draw(st.permutations(range(len(dimensions))))))


@settings(max_examples=300)
@given(shapes())
def test_strides_are_numpys(shape) -> None:
    order = tuple(reversed(shape.minor_to_major))
    laid_out = np.empty([shape.dimensions[number] for number in order], "float32").transpose(np.argsort(order))
    for number, size in enumerate(shape.dimensions):
        if size > 1:
            assert laid_out.strides[number] == 4 * shape.strides[number]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 64)), max_size=4))
def test_merge_walks_the_same_places_in_the_same_order(parts) -> None:
    merged = merge_dimensions(parts)
    wanted = places(parts[::-1]).ravel()
    if merged is not None:
        np.testing.assert_array_equal(places([merged]), wanted)
    elif len(wanted) > 1:
        assert len(set(np.diff(wanted))) > 1, "one stride would have done"


@settings(max_examples=300)
@given(shapes(), st.data())
def test_pieces_put_together_are_the_dimension(shape, data) -> None:
    size, stride = data.draw(st.tuples(st.integers(1, 8), st.sampled_from([*shape.strides, 2, 3])))
    parts = split_dimension((size, stride), shape)
    if parts is None:
        return
    assert math.prod(part for part, _, _ in parts) == size
    over_buffer = [(part, shape.strides[number] * step) for part, number, step in parts]
    np.testing.assert_array_equal(places(over_buffer[::-1]).ravel(), places([(size, stride)]))


@settings(max_examples=300)
@given(shapes(), st.data())
def test_restate_reads_the_same_elements(shape, data) -> None:
    """A dense array looked at through another layout of its own dimensions."""
    other = Shape("f32", shape.dimensions, tuple(data.draw(st.permutations(range(len(shape.dimensions))))))
    numbers = data.draw(st.permutations(range(len(shape.dimensions))))
    dimensions = [(shape.dimensions[n], shape.strides[n]) for n in numbers]
    restated = rebase_dimensions(dimensions, shape, other.strides)
    assert restated is not None
    content = np.empty(shape.elements, int)  # element ids in shape's buffer
    content[places([(s, t) for s, t in zip(shape.dimensions, shape.strides, strict=True)]).ravel()] = range(
        shape.elements
    )
    moved = np.empty(shape.elements, int)
    moved[places([(s, t) for s, t in zip(other.dimensions, other.strides, strict=True)]).ravel()] = range(
        shape.elements
    )
    np.testing.assert_array_equal(moved[places(restated)], content[places(dimensions)])


@settings(max_examples=300)
@given(shapes(2), st.data())
def test_project_broadcasts_like_numpy(shape, data) -> None:
    """An operand that repeats along some dimensions, stated in two of the result's dimensions merged."""
    whole = data.draw(st.lists(st.booleans(), min_size=len(shape.dimensions), max_size=len(shape.dimensions)))
    strides = [stride if kept else 0 for stride, kept in zip(shape.strides, whole, strict=True)]
    order = sorted(range(len(shape.dimensions)), key=lambda n: -shape.strides[n])
    first, second, *rest = order
    merged = merge_dimensions([(shape.dimensions[n], shape.strides[n]) for n in (second, first)])
    onto = [merged, *((shape.dimensions[n], shape.strides[n]) for n in rest)]
    projected = project_dimensions([*zip(shape.dimensions, strides, strict=True)], shape, onto)
    sizes = (shape.dimensions[first], shape.dimensions[second])
    in_part = whole[first] != whole[second] and min(sizes) > 1
    assert (projected is None) == in_part
    if projected is None:
        return
    wanted = places([(shape.dimensions[n], strides[n]) for n in order]).reshape([size for size, _ in onto])
    got = places([(size, stride if got > 1 else 0) for (size, _), (got, stride) in zip(onto, projected, strict=True)])
    np.testing.assert_array_equal(got, wanted)


@settings(max_examples=300)
@given(shapes())
def test_dense_gives_unit_dimensions_their_natural_stride(shape) -> None:
    dimensions = own(shape)
    forgotten = [(size, 7 if size == 1 else stride) for size, stride in dimensions]
    restored = with_dense_strides(forgotten, dimensions)
    assert [size for size, _ in restored] == list(shape.dimensions)
    np.testing.assert_array_equal(places(restored), places(dimensions))


def elements(view: View, buffer: np.ndarray) -> np.ndarray:
    return buffer[view.offset + places(view.dimensions)]


def fused(shape: str, text: str, ahead: str = "") -> FlatGraph:
    """A fusion's value y of x."""
    body = f"fused {{ p = f32[3,4]{{1,0}} parameter(0)\n {ahead}\n ROOT y = {shape} {text} }}"
    entry = f"x = f32[3,4]{{1,0}} parameter(0)\n ROOT z = {shape} fusion(x), kind=kLoop, calls=fused"
    return flattened(f"{body}\nENTRY main {{ {entry} }}")


X = np.arange(12).reshape(3, 4)
MOVES = {
    "transpose": ("f32[4,3]{1,0}", "transpose(p), dimensions={1,0}", X.T),
    "copy": ("f32[3,4]{0,1}", "copy(p)", X),
    "broadcast": ("f32[3,2,4]{0,2,1}", "broadcast(p), dimensions={0,2}", np.stack([X, X], 1)),
    "reverse": ("f32[3,4]{1,0}", "reverse(p), dimensions={0}", X[::-1]),
    "slice": ("f32[2,2]{1,0}", "slice(p), slice={[1:3],[0:4:3]}", X[1:3, 0:4:3]),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_peeled_view_has_the_elements_of_the_value(move: str) -> None:
    shape, text, expected = MOVES[move]
    value = node(fused(shape, text), "y")
    view = peel(full_view(value), frozenset((move,)))
    np.testing.assert_array_equal(elements(view, X.ravel()), expected)
    assert peel(full_view(value), PEEL_WIDENING) is None
    assert peel(full_view(value), frozenset((move,)), results={value}) is None


def test_a_reversal_is_followed_through_a_transpose() -> None:
    value = node(
        fused("f32[4,3]{1,0}", "reverse(t), dimensions={0,1}", "t = f32[4,3]{1,0} transpose(p), dimensions={1,0}"), "y"
    )
    view = peeled_views(full_view(value), PEEL_LAYOUTS | PEEL_REVERSALS)[-1]
    assert view.node.opcode == "parameter"
    np.testing.assert_array_equal(elements(view, X.ravel()), X.T[::-1, ::-1])


@pytest.mark.parametrize("move", ["transpose", "copy"])
def test_following_undoes_peeling(move: str) -> None:
    shape, text, _ = MOVES[move]
    value = node(fused(shape, text), "y")
    (source,) = value.operands
    rows = View(source, ((2, 4), (4, 1)), 4)  # the last two
    behind = follow(rows, value, PEEL_LAYOUTS)
    assert behind.node is value
    assert peel(behind, PEEL_LAYOUTS) == rows


def test_one_stride_for_several_dimensions() -> None:
    value = node(fused("f32[4,3]{1,0}", "transpose(p), dimensions={1,0}"), "y")
    assert peel_or_split(View(value, ((12, 1),)), PEEL_LAYOUTS) == DimensionSplit(0, (4, 3))
    rows = View(value, ((2, 6), (3, 1)), 3)
    assert elements(peel(rows, PEEL_LAYOUTS), X.ravel()).tolist() == X.T[1:4:2].tolist()
    over_the_end = View(value, ((3, 1),), 1)
    assert peel_or_split(over_the_end, PEEL_LAYOUTS) is None
