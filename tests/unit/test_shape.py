"""Shapes: strides by layout, sizes, conversion to a proto."""

from __future__ import annotations

import pytest

from hlo_dispatch.ir.schema import ShapeProto
from hlo_dispatch.ir.shape import Shape, row_major, shape_of
from matching import instruction, parsed


def shape(text: str) -> Shape:
    """The shape of HLO text, read by XLA."""
    return shape_of(instruction(parsed(f"ENTRY main {{ ROOT value = {text} parameter(0) }}"), "value").shape)


@pytest.mark.parametrize(
    ("text", "strides", "size"),
    [
        ("f32[2,3,5]{2,1,0}", (15, 5, 1), 120),
        ("f32[2,3,5]{0,1,2}", (1, 2, 6), 120),
        ("bf16[2,3,5]{1,2,0}", (15, 1, 3), 60),
        ("f64[1,7]{0,1}", (1, 1), 56),
        ("pred[0,4]{1,0}", (4, 1), 0),
        ("s8[]", (), 1),
        ("c128[3]{0}", (1,), 48),
        ("s4[5,3]{1,0:E(4)}", (3, 1), 8),
        ("s4[5,3]{1,0}", (3, 1), 15),
    ],
)
def test_array(text: str, strides: tuple, size: int) -> None:
    read = shape(text)
    assert str(read) == text
    assert (read.strides, read.bytes) == (strides, size)
    assert read.is_array
    assert not read.is_dynamic
    assert shape_of(read.to_proto()) == read


def test_tuple() -> None:
    read = shape("(f32[2]{0}, s32[])")
    assert read.element_type == "tuple"
    assert (read.is_array, read.bytes, read.dimensions) == (False, 0, ())


@pytest.mark.parametrize("text", ["token[]", "opaque[]"])
def test_what_is_no_array(text: str) -> None:
    assert not shape(text).is_array


def test_dynamic_dimension() -> None:
    assert shape("f32[<=4,2]{1,0}").is_dynamic


def test_unknown_element_type_is_named_by_its_number() -> None:
    read = shape_of(ShapeProto(element_type=99, dimensions=[2]))
    assert read.element_type == "type99"
    assert not read.is_array


def test_row_major() -> None:
    assert row_major("f32", (2, 3, 5)) == shape("f32[2,3,5]{2,1,0}")
    assert str(row_major("f32", ())) == "f32[]"


def test_proto_is_one_that_xla_writes() -> None:
    """An absent padding alignment would be read as a tiled layout."""
    module = parsed("ENTRY main { ROOT value = f32[2,3]{0,1} parameter(0) }")
    assert shape("f32[2,3]{0,1}").to_proto() == instruction(module, "value").shape
