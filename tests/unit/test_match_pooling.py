"""Normalizer of pooling: spatial dimensions, padding, and reductions that are no pooling."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import Refusal
from matching import flattened, matches, only_match

REDUCER = "r { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] OPERATION(a, b) }\n"


def module(body: str, operation: str = "maximum") -> str:
    return f"{REDUCER.replace('OPERATION', operation)}ENTRY e {{\n{body}\n}}"


def refusal(text: str) -> Refusal:
    (found,) = matches(flattened(text)).values()
    assert isinstance(found, Refusal), found
    return found


def padded(filling: str, value: str, window: str = "size=1x3x3x1 stride=1x2x2x1", start: str = "-inf") -> str:
    """A pad by one of x (8 by 8 of 4 channels), or of `value` of it, ahead of a window."""
    return f"""
  x = f32[1,8,8,4] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[1,8,8,4] broadcast(zero), dimensions={{}}
  value = f32[1,8,8,4] {value}
  filling = f32[] constant({filling})
  pad = f32[1,10,10,4] pad(value, filling), padding=0_0x1_1x1_1x0_0
  start = f32[] constant({start})
  ROOT pool = f32[1,4,4,4] reduce-window(pad, start), window={{{window}}}, to_apply=r"""


def test_space_is_where_the_window_goes_and_channels_are_what_varies_fastest_of_the_rest():
    found = only_match(
        module(
            "x = f32[2,3,5,7,11] parameter(0)\n i = f32[] constant(-inf)\n"
            "ROOT p = f32[2,3,2,7,5] reduce-window(x, i), window={size=1x1x3x1x3 stride=1x1x2x1x2}, to_apply=r"
        )
    ).attributes()
    # Of what is no space, 7 varies fastest; 2 and 3 are one batch.
    assert found["src_dims"] == [6, 7, 5, 11]
    assert found["src_strides"] == [385, 11, 77, 1]
    assert found["dst_dims"] == [6, 7, 2, 5]
    assert (found["window"], found["strides"]) == ([3, 3], [2, 2])


def test_a_pad_with_zeros_of_what_is_never_negative_is_padding():
    match = only_match(module(padded("0", "maximum(x, zeros)")))
    assert [node.name for node in match.covered] == ["pool", "pad"]
    assert [node.name for node in match.reads] == ["value"]
    found = match.attributes()
    assert (found["padding_low"], found["padding_high"]) == ([1, 1], [1, 1])


def test_a_pad_with_minus_infinity_is_padding_of_anything():
    assert [node.name for node in only_match(module(padded("-inf", "negate(x)"))).reads] == ["value"]


@pytest.mark.parametrize(
    ("filling", "value"),
    [("0", "negate(x)"), ("1", "maximum(x, zeros)"), ("nan", "maximum(x, zeros)"), ("0", "minimum(x, zeros)")],
)
def test_a_pad_that_can_be_the_maximum_stays(filling, value):
    match = only_match(module(padded(filling, value)))
    assert [node.name for node in match.reads] == ["pad"]
    assert match.attributes()["padding_low"] == [0, 0]


def test_a_sum_takes_a_pad_with_zeros_of_anything_and_with_nothing_else():
    zeros = only_match(module(padded("0", "negate(x)", start="0"), "add"))
    assert [node.name for node in zeros.reads] == ["value"]
    ones = only_match(module(padded("1", "negate(x)", start="0"), "add"))
    assert [node.name for node in ones.reads] == ["pad"]


def test_a_sum_is_an_average_times_the_size_of_the_window():
    found = only_match(module(padded("0", "negate(x)", start="0"), "add")).attributes()
    assert found["algorithm"] == "average"
    assert found["post_op_0"] == {"kind": "eltwise", "algorithm": "linear", "alpha": 9.0, "beta": 0.0}


def test_a_pad_of_channels_stays():
    match = only_match(
        module(
            "x = f32[1,8,8,4] parameter(0)\n i = f32[] constant(-inf)\n"
            "pad = f32[1,8,8,6] pad(x, i), padding=0_0x0_0x0_0x1_1\n"
            "ROOT p = f32[1,3,3,6] reduce-window(pad, i), window={size=1x3x3x1 stride=1x2x2x1}, to_apply=r"
        )
    )
    assert [node.name for node in match.reads] == ["pad"]


def test_a_pad_that_others_read_is_read_past_but_not_covered():
    text = padded("-inf", "negate(x)").replace("ROOT pool", "pool") + (
        "\n  total = f32[1,10,10,4] negate(pad)\n  ROOT both = (f32[1,4,4,4], f32[1,10,10,4]) tuple(pool, total)"
    )
    match = only_match(module(text))
    assert [node.name for node in match.covered] == ["pool"]
    assert [node.name for node in match.reads] == ["value"]


def test_windows_that_lie_in_the_padding_are_refused():
    text = module(
        "x = f32[1,4,4,8] parameter(0)\n i = f32[] constant(-inf)\n"
        "ROOT p = f32[1,8,4,8] reduce-window(x, i), window={size=1x3x1x1 pad=0_0x3_3x0_0x0_0}, to_apply=r"
    )
    assert refusal(text).code == "empty-window"


@pytest.mark.parametrize(
    ("operation", "start"),
    [("minimum", "inf"), ("maximum", "0"), ("add", "1")],
)
def test_other_reductions_are_refused(operation, start):
    text = module(
        f"x = f32[1,4,4,8] parameter(0)\n i = f32[] constant({start})\n"
        "ROOT p = f32[1,2,2,8] reduce-window(x, i), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=r",
        operation,
    )
    assert refusal(text).code == "reducer-unsupported"


@pytest.mark.parametrize(
    "window", ["size=1x2x2x1 stride=1x2x2x1 lhs_dilate=1x2x2x1", "size=1x2x2x1 stride=1x2x2x1 pad=0_0x-1_0x0_0x0_0"]
)
def test_dilated_inputs_and_negative_padding_are_refused(window):
    shape = "1,3,3,8" if "lhs" in window else "1,1,2,8"
    text = module(
        "x = f32[1,4,4,8] parameter(0)\n i = f32[] constant(-inf)\n"
        f"ROOT p = f32[{shape}] reduce-window(x, i), window={{{window}}}, to_apply=r"
    )
    assert refusal(text).code in ("base-dilation", "negative-padding")


def test_a_long_reduction_in_steps_is_no_pooling():
    text = module(
        "x = f32[8,1000] parameter(0)\n i = f32[] constant(-inf)\n"
        "ROOT p = f32[8,32] reduce-window(x, i), window={size=1x32 stride=1x32 pad=0_0x12_12}, to_apply=r"
    )
    assert matches(flattened(text)) == {}


def test_what_only_a_fusion_computes_is_not_written_for_a_pooling():
    text = f"""{REDUCER.replace("OPERATION", "add")}
f {{
  p = f32[16] parameter(0)
  z = f32[] parameter(1)
  wide = f32[1,9,9,16] broadcast(p), dimensions={{3}}
  n = f32[1,9,9,16] negate(wide)
  ROOT s = f32[1,4,4,16] reduce-window(n, z), window={{size=1x3x3x1 stride=1x2x2x1}}, to_apply=r
}}
ENTRY e {{
  x = f32[16] parameter(0)
  zero = f32[] constant(0)
  ROOT fused = f32[1,4,4,16] fusion(x, zero), kind=kLoop, calls=f
}}"""
    assert refusal(text).code == "not-in-memory"
