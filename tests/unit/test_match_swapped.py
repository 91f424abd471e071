"""Normalizer of convolutions whose operands XLA has swapped, because the kernel is larger than the image."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.match import Match
from matching import flattened, matches


def convolution(kernel: str, image: str, window: str, result: str, turned: str = "{0,1}") -> str:
    """An image of 16 channels slides over a kernel with 32 results."""
    return f"""
ENTRY main {{ x = f32[1,{image},16]{{3,2,1,0}} parameter(0)
  w = f32[{kernel},16,32]{{3,2,1,0}} parameter(1)
  turned = f32[{kernel},16,32]{{3,2,1,0}} reverse(w), dimensions={turned}
  ROOT c = f32[1,{result},32]{{3,2,1,0}} convolution(turned, x), window={{{window}}}, dim_labels=01fb_o01i->f01b }}
"""


def only(text: str) -> Match | Refusal:
    (found,) = matches(flattened(text)).values()
    return found


@pytest.mark.parametrize(
    ("text", "low", "high", "dilations"),
    [
        (convolution("3,3", "2,2", "size=2x2 rhs_reversal=1x1", "2,2"), [1, 1], [1, 1], [0, 0]),
        (convolution("1,3", "1,1", "size=1x1 pad=0_0x-1_-1 rhs_reversal=0x1", "1,1", "{1}"), [0, 1], [0, 1], [0, 0]),
        (convolution("3,3", "3,2", "size=3x2 pad=0_0x-1_-1 lhs_dilate=2x2 rhs_reversal=1x1", "3,2"),
         [2, 2], [2, 2], [1, 1]),
        (convolution("5,5", "3,2", "size=3x2 pad=1_0x1_1 rhs_reversal=1x1", "4,6"), [3, 4], [2, 4], [0, 0]),
    ],
    ids=["3x3", "one position", "dilated", "uneven"],
)  # fmt: skip
def test_they_are_read_as_they_were_written(text: str, low: list, high: list, dilations: list) -> None:
    found = only(text)
    assert isinstance(found, Match), str(found)
    attributes = found.attributes()
    assert [view.node.name for view in found.operands.values()] == ["x", "w"]
    assert found.anchor.kernel == "onednn.convolution"
    assert (attributes["padding_low"], attributes["padding_high"]) == (low, high)
    assert (attributes["strides"], attributes["dilations"]) == ([1, 1], dilations)
    assert attributes["src_dims"][:2] == [1, 16]
    assert attributes["weights_dims"][:2] == [32, 16]
    assert attributes["dst_dims"][:2] == [1, 32]
    assert "weights_reversed" not in attributes


@pytest.mark.parametrize("dilated", [False, True])
def test_a_slice_of_their_channels_is_computed_alone(dilated: bool) -> None:
    window, (rows, columns) = ("pad=0_0x-1_-1 lhs_dilate=2x2 ", (3, 2)) if dilated else ("pad=1_0x1_1 ", (2, 4))
    text = convolution("3,3", "3,2", f"size=3x2 {window}rhs_reversal=1x1", f"{rows},{columns}")
    bounds = f"{{[0:1], [0:{rows}], [0:{columns}], [8:16]}}"
    part = f"ROOT s = f32[1,{rows},{columns},8]{{3,2,1,0}} slice(c), slice={bounds} }}"
    found = only(text.replace("ROOT c", "c").replace("f01b }", f"f01b\n  {part}"))
    assert isinstance(found, Match), str(found)
    assert found.formula == "slice(conv(x, w))"
    assert found.attributes()["weights_dims"][:2] == [8, 16]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (convolution("3,3", "2,2", "size=2x2 rhs_reversal=1x1", "2,2").replace("(turned, x)", "(w, x)"),
         "window-reversal"),
        (convolution("3,3", "2,2", "size=2x2 rhs_reversal=0x1", "2,2"), "window-reversal"),
        (convolution("3,3", "2,2", "size=2x2 pad=-1_0x0_0 rhs_reversal=1x1", "1,2"), ""),
        (convolution("5,5", "2,2", "size=2x2 pad=-2_-2x0_0 rhs_reversal=1x1", "0,4"), "zero-size"),
        (convolution("3,3", "2,2", "size=2x2 pad=3_0x0_0 rhs_reversal=1x1", "5,2"), ""),
        (convolution("3,3", "2,2", "size=2x2 pad=-2_3x0_0 rhs_reversal=1x1", "3,2"), "negative-padding"),
    ],
    ids=["kernel as it lies", "half turned", "cropped kernel", "nothing left", "padded kernel", "cropped image"],
)  # fmt: skip
def test_what_is_not_swapped_or_crops_the_image(text: str, code: str) -> None:
    found = only(text)
    assert (found.code if isinstance(found, Refusal) else "") == code
