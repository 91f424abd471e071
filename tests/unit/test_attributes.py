"""Backend config text: the spelling of each Python value, and that XLA parses it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.attributes import from_text, to_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3 : i64"),
        (-3, "-3 : i64"),
        (True, "true"),
        (0.5, "0.5 : f32"),
        (-0.0, "-0.0 : f32"),
        (2.0, "2.0 : f32"),
        (1e-30, "1.0e-30 : f32"),
        (1e22, "1.0e+22 : f32"),
        (1.5e22, "1.5e+22 : f32"),
        (math.inf, "0x7F800000 : f32"),
        (-math.inf, "0xFF800000 : f32"),
        (math.nan, "0x7FC00000 : f32"),
        ([1, -2], "array<i64: 1, -2>"),
        ((), "array<i64>"),
        ('say "\\"', '"say \\"\\\\\\""'),
        ({"a": {"b": 1}}, "{a = {b = 1 : i64}}"),
    ],
)
def test_values(value, text) -> None:
    assert to_text({"x": value}) == "{x = " + text + "}"


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        to_text({"x": None})


def test_lines_are_escaped() -> None:
    assert "\n" not in to_text({"x": "two\nlines"})


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 1e-45, 3.4e38, "tab\t", "ünï", "", [2**40], {"a": []}])
def test_xla_reads_extremes(value) -> None:
    config = "backend_config=" + to_text({"x": value})
    assert config in hlo_text.to_text(hlo_text.from_text(call_with(config)))


def test_xla_reads_it() -> None:
    config = "backend_config=" + to_text({"a": 1, "b": [1, 2], "c": {"d": math.inf, "e": 1e-30}, "f": "x", "g": ()})
    assert config in hlo_text.to_text(hlo_text.from_text(call_with(config)))


def call_with(config: str) -> str:
    return f"""HloModule m
ENTRY main {{
  ROOT call = f32[2]{{0}} custom-call(), custom_call_target="t", api_version=API_VERSION_TYPED_FFI, {config}
}}
"""


names = st.text("abcdefghij_0123456789", min_size=1).map(lambda text: f"a{text}")
numbers = st.integers(-(2**63), 2**63 - 1)
scalars = numbers | st.booleans() | st.floats(width=32, allow_nan=False) | st.text() | st.lists(numbers)
attributes = st.dictionaries(names, scalars | st.dictionaries(names, scalars))


@given(attributes)
def test_what_was_written_is_read(values) -> None:
    assert from_text(to_text(values)) == values


def test_not_a_number_is_read() -> None:
    assert math.isnan(from_text(to_text({"x": math.nan}))["x"])


@pytest.mark.parametrize(
    "text", ["", "x = 1 : i64", "{", "{x}", "{x = }", "{x = 1 : i64", "{x = 1 ; y}", '{x = "}', "{{}"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"kernel call's attributes|no value|could not convert"):
        from_text(text)
