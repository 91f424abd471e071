"""Normalizers of weights gradients and transposed convolutions, and what they must refuse."""

from __future__ import annotations

import pytest

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir import text
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.epilogue.finder import EpilogueFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.pattern import Recogniser, load_tables
from hlo_dispatch.process.machine import this_machine

TABLE = load_tables()


def match(module: str) -> Match | Refusal:
    """What the only anchor of the module's entry is matched as."""
    parsed = Module.from_bytes(text.from_text(module))
    (graph,) = [FlatGraph(parsed, computation) for computation, _ in parsed.control_flow_computations()]
    matcher = Matcher(graph, TABLE, EpilogueFinder(Recogniser(TABLE.activations), TABLE.binaries), this_machine())
    anchor, *_ = matcher.anchors()  # a diagonal is cut out by a pooling, which comes last
    return matcher.match(anchor, lambda _: False, lambda node: node is graph.root)


def attributes(module: str) -> dict:
    found = match(module)
    assert isinstance(found, Match), found
    return {"kernel": found.anchor.kernel.removeprefix("onednn."), **found.attributes()}


# --- weights' gradients ---------------------------------------------------------------------------

# As XLA:CPU has it for x f32[2,8,8,16], a 3x3 window and dy f32[2,8,8,32], channels last.
GRADIENT = """HloModule m
ENTRY e {
  x = f32[2,8,8,16] parameter(0)
  dy = f32[2,8,8,32] parameter(1)
  xt = f32[16,8,8,2] transpose(x), dimensions={3,1,2,0}
  dyt = f32[8,8,2,32] transpose(dy), dimensions={1,2,0,3}
  c = f32[16,3,3,32] convolution(xt, dyt), window={size=8x8 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  ROOT dw = f32[3,3,16,32] transpose(c), dimensions={1,2,0,3}
}
"""


def test_a_gradient_is_read_in_its_operands_own_layouts():
    found = attributes(GRADIENT)
    assert found["kernel"] == "weights_gradient"
    assert found["src_dims"] == [2, 16, 8, 8]
    assert found["src_strides"] == [1024, 1, 128, 16]
    assert found["diff_dst_dims"] == [2, 32, 8, 8]
    assert found["diff_dst_strides"] == [2048, 1, 256, 32]
    assert found["diff_weights_dims"] == [32, 16, 3, 3]
    assert found["diff_weights_strides"] == [1, 32, 1536, 512]
    assert (found["strides"], found["dilations"]) == ([1, 1], [0, 0])
    assert (found["padding_low"], found["padding_high"]) == ([1, 1], [1, 1])


def test_an_epilogue_stays_outside():
    module = GRADIENT.replace("ROOT dw", "dw").replace("\n}", "\n  ROOT r = f32[3,3,16,32] multiply(dw, dw)\n}")
    found = match(module)
    assert isinstance(found, Match)
    assert found.output.name == "dw"
    assert not found.fused.post_ops


def test_stride_and_dilation_change_places():
    module = GRADIENT.replace("dy = f32[2,8,8,32]", "dy = f32[2,4,4,32]").replace(
        "dyt = f32[8,8,2,32]", "dyt = f32[4,4,2,32]"
    ).replace("window={size=8x8 pad=1_1x1_1}", "window={size=4x4 stride=2x2 pad=1_2x1_2 rhs_dilate=2x2}")  # fmt: skip
    found = attributes(module)
    assert (found["strides"], found["dilations"]) == ([2, 2], [1, 1])
    # Exactly as much padding as the forward convolution's last position reads.
    assert (found["padding_low"], found["padding_high"]) == ([1, 1], [2, 2])


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("pad=1_1x1_1", "pad=-1_3x1_1", "negative-padding: padding -1 crops the input"),
        ("pad=1_1x1_1", "pad=1_1x1_1 rhs_reversal=1x1", "window-reversal: only one of the operands is read backwards"),
        ("pad=1_1x1_1", "pad=1_1x1_1 rhs_reversal=1x0", "window-reversal: the window is read backwards in one"),
    ],
)
def test_gradients_that_are_refused(old, new, why):
    found = match(GRADIENT.replace(old, new))
    assert isinstance(found, Refusal)
    assert str(found).startswith(why)


def test_a_large_window_over_channels_last_is_an_ordinary_convolution():
    module = """HloModule m
    ENTRY e {
      x = f32[1,7,7,64] parameter(0)
      w = f32[7,7,64,32] parameter(1)
      ROOT c = f32[1,1,1,32] convolution(x, w), window={size=7x7}, dim_labels=b01f_01io->b01f
    }
    """
    assert attributes(module)["kernel"] == "convolution"


# --- groups in the form of space ------------------------------------------------------------------

GROUPS = """HloModule m
ENTRY e {
  x = f32[2,8,8,32] parameter(0)
  dy = f32[2,8,8,64] parameter(1)
  xg = f32[2,8,8,4,8] bitcast(x)
  dyg = f32[2,8,8,4,16] bitcast(dy)
  xt = f32[8,8,8,4,2] transpose(xg), dimensions={4,1,2,3,0}
  dyt = f32[8,8,4,2,16] transpose(dyg), dimensions={1,2,3,0,4}
  ROOT c = f32[8,3,3,4,16] convolution(xt, dyt), window={size=8x8x4 stride=1x1x3 pad=1_1x1_1x0_0 lhs_dilate=1x1x4},
    dim_labels=b012f_012io->b012f
}
"""


def test_groups_in_the_form_of_space():
    found = attributes(GROUPS)
    assert found["src_dims"] == [2, 32, 8, 8]
    assert found["diff_dst_dims"] == [2, 64, 8, 8]
    assert found["diff_weights_dims"] == [4, 16, 8, 3, 3]
    assert found["diff_weights_strides"] == [16, 1, 576, 192, 64]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("stride=1x1x3 pad=1_1x1_1x0_0", "stride=1x1x3 pad=1_1x1_1x1_-1"),
        ("stride=1x1x3 pad=1_1x1_1x0_0", "stride=1x1x3 pad=1_1x1_1x0_0 rhs_reversal=0x0x1"),
        ("[8,3,3,4,16] convolution(xt, dyt), window={size=8x8x4 stride=1x1x3",
         "[8,3,3,10,16] convolution(xt, dyt), window={size=8x8x4 stride=1x1x1"),
    ],
)  # fmt: skip
def test_what_looks_like_groups_but_meets_other_positions(old, new):
    assert old in GROUPS
    assert isinstance(match(GROUPS.replace(old, new)), Refusal)


# --- diagonals ------------------------------------------------------------------------------------

DIAGONAL = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
maximum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] maximum(a, b)
}
twice {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, a)
}
ENTRY e {
  x = f32[2,8,8,16] parameter(0)
  dy = f32[2,8,8,16] parameter(1)
  xt = f32[16,8,8,2] transpose(x), dimensions={3,1,2,0}
  dyt = f32[8,8,2,16] transpose(dy), dimensions={1,2,0,3}
  c = f32[16,3,3,16] convolution(xt, dyt), window={size=8x8 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  t = f32[3,3,16,16] transpose(c), dimensions={1,2,0,3}
  i = s32[3,3,16,16] iota(), iota_dimension=2
  o = s32[3,3,16,16] iota(), iota_dimension=3
  p = pred[3,3,16,16] compare(i, o), direction=EQ
  zero = f32[] constant(0)
  one = f32[] constant(1)
  zeros = f32[3,3,16,16] broadcast(zero), dimensions={}
  ones = f32[3,3,16,16] broadcast(one), dimensions={}
  d = f32[3,3,16,16] select(p, t, zeros)
  ROOT r = f32[3,3,1,16] reduce-window(d, zero), window={size=1x1x16x1 stride=1x1x16x1}, to_apply=add
}
"""
SUM = "ROOT r = f32[3,3,1,16] reduce-window(d, zero), window={size=1x1x16x1 stride=1x1x16x1}, to_apply=add"


@pytest.mark.parametrize(
    ("old", "new", "spatial_strides"),
    [
        (SUM, SUM, [48, 16]),
        (SUM, "ROOT r = f32[3,3,16] reduce(d, zero), dimensions={2}, to_apply=add", [48, 16]),
        (SUM, "ROOT r = f32[3,3,16] reduce(d, zero), dimensions={3}, to_apply=add", [48, 16]),
        (SUM, SUM.replace("f32[3,3,1,16]", "f32[3,3,16,1]").replace("1x1x16x1", "1x1x1x16"), [48, 16]),
        ("compare(i, o)", "compare(o, i)", [48, 16]),
        ("i = s32[3,3,16,16] iota(), iota_dimension=2",
         "n = s32[16] iota(), iota_dimension=0\n  i = s32[3,3,16,16] broadcast(n), dimensions={2}", [48, 16]),
    ],
)  # fmt: skip
def test_the_diagonal_of_a_dense_gradient_is_a_depthwise_one(old, new, spatial_strides):
    assert old in DIAGONAL
    found = match(DIAGONAL.replace(old, new))
    assert isinstance(found, Match)
    assert found.output.name == "r"
    assert {"c", "t", "d", "r"} <= {node.name for node in found.covered}
    assert found.attributes()["diff_weights_dims"] == [16, 1, 1, 3, 3]
    assert found.attributes()["diff_weights_strides"][0] == 1
    assert found.attributes()["diff_weights_strides"][3:] == spatial_strides


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("direction=EQ", "direction=NE"),
        ("direction=EQ", "direction=GE"),
        ("iota_dimension=3", "iota_dimension=2"),
        ("iota_dimension=3", "iota_dimension=1"),
        ("select(p, t, zeros)", "select(p, zeros, t)"),
        ("select(p, t, zeros)", "select(p, t, ones)"),
        ("select(p, t, zeros)", "select(p, t, dense)"),
        ("reduce-window(d, zero)", "reduce-window(d, one)"),
        ("to_apply=add", "to_apply=maximum"),
        ("to_apply=add", "to_apply=twice"),
        (SUM, "ROOT r = f32[3,3,2,16] reduce-window(d, zero), window={size=1x1x8x1 stride=1x1x8x1}, to_apply=add"),
        (SUM, "ROOT r = f32[3,1,16,16] reduce-window(d, zero), window={size=1x3x1x1 stride=1x3x1x1}, to_apply=add"),
        (SUM, SUM.replace("[3,3,1,16]", "[3,3,2,16]").replace("16x1}", "16x1 pad=0_0x0_0x0_16x0_0}")),
        (SUM, "ROOT r = f32[3,16,16] reduce(d, zero), dimensions={1}, to_apply=add"),
        (SUM, "ROOT r = f32[3,3] reduce(d, zero), dimensions={2,3}, to_apply=add"),
        (SUM, SUM.replace("ROOT r", "r") + "\n  ROOT both = (f32[3,3,16,16], f32[3,3,1,16]) tuple(d, r)"),
    ],
)
def test_what_is_not_quite_a_diagonal_stays_dense(old, new):
    assert old in DIAGONAL
    module = DIAGONAL.replace(old, new)
    if "dense" in new:
        module = module.replace("ENTRY e {", "ENTRY e {\n  dense = f32[3,3,16,16] parameter(2)")
    found = match(module)
    assert isinstance(found, Match)
    assert found.attributes()["diff_weights_dims"] == [16, 16, 3, 3]
    assert "d" not in {node.name for node in found.covered}


# --- transposed convolutions ----------------------------------------------------------------------

TRANSPOSED = """HloModule m
ENTRY e {
  x = f32[2,7,7,16] parameter(0)
  w = f32[3,3,16,32] parameter(1)
  ROOT c = f32[2,14,14,32] convolution(x, w), window={size=3x3 pad=2_1x2_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f
}
"""


def test_a_transposed_convolution_reads_its_window_back_to_front():
    found = attributes(TRANSPOSED)
    assert found["kernel"] == "deconvolution"
    assert found["strides"] == [2, 2]
    assert (found["padding_low"], found["padding_high"]) == ([0, 0], [1, 1])
    assert found["weights_dims"] == [32, 16, 3, 3]
    assert found["weights_reversed"] == 1


def with_weights(*instructions: str, operand: str) -> str:
    lines = "\n".join(instructions)
    return TRANSPOSED.replace("w = f32[3,3,16,32] parameter(1)", lines).replace("(x, w)", f"(x, {operand})")


def test_reversed_weights_are_read_ahead_of_the_reversal():
    module = with_weights(
        "w = f32[3,3,32,16] parameter(1)", "v = f32[3,3,32,16] reverse(w), dimensions={0,1}",
        "t = f32[3,3,16,32] transpose(v), dimensions={0,1,3,2}", operand="t",
    )  # fmt: skip
    found = match(module)
    assert isinstance(found, Match)
    assert found.operands["weights"].node.name == "w"
    assert found.attributes()["weights_strides"] == [16, 1, 1536, 512]
    assert found.attributes()["weights_reversed"] == 0


@pytest.mark.parametrize("dimensions", ["0", "2", "0,1,2"])
def test_weights_reversed_otherwise_are_read_behind_the_reversal(dimensions):
    module = with_weights(
        "w = f32[3,3,16,32] parameter(1)",
        f"v = f32[3,3,16,32] reverse(w), dimensions={{{dimensions}}}",
        operand="v",
    )
    found = match(module)
    assert isinstance(found, Match)
    assert found.operands["weights"].node.name == "v"
    assert found.attributes()["weights_reversed"] == 1


def test_reversed_twice_is_not_reversed():
    module = with_weights(
        "w = f32[3,3,16,32] parameter(1)", "u = f32[3,3,16,32] reverse(w), dimensions={1}",
        "v = f32[3,3,16,32] reverse(u), dimensions={1}", operand="v",
    )  # fmt: skip
    found = match(module)
    assert isinstance(found, Match)
    assert found.operands["weights"].node.name == "w"
    assert found.attributes()["weights_reversed"] == 1


@pytest.mark.parametrize(
    ("window", "result", "why"),
    [
        (
            "size=3x3 stride=2x2 pad=2_1x2_1 lhs_dilate=2x2",
            "7,7",
            "base-dilation: the window moves by 2 over a dilated input",
        ),
        ("size=3x3 pad=3_1x2_1 lhs_dilate=2x2", "15,14", "negative-padding: padding 3_1"),
        ("size=3x3 pad=2_4x2_1 lhs_dilate=2x2", "17,14", "negative-padding: padding 2_4"),
        ("size=3x3 pad=2_1x2_1 lhs_dilate=2x2 rhs_reversal=1x1", "14,14", "window-reversal"),
    ],
)
def test_transposed_convolutions_that_are_refused(window, result, why):
    module = TRANSPOSED.replace("size=3x3 pad=2_1x2_1 lhs_dilate=2x2", window)
    found = match(module.replace("[2,14,14,32]", f"[2,{result},32]"))
    assert isinstance(found, Refusal)
    assert str(found).startswith(why)


def test_an_input_gradient_reads_reversed_weights_as_they_lie():
    module = """HloModule m
    ENTRY e {
      dy = f32[2,8,8,32] parameter(0)
      w = f32[3,3,16,32] parameter(1)
      v = f32[3,3,16,32] reverse(w), dimensions={0,1}
      t = f32[3,3,32,16] transpose(v), dimensions={0,1,3,2}
      ROOT c = f32[2,8,8,16] convolution(dy, t), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
    }
    """
    found = match(module)
    assert isinstance(found, Match)
    assert found.operands["weights"].node.name == "w"
    assert found.attributes()["weights_dims"] == [16, 32, 3, 3]
    assert found.attributes()["weights_strides"] == [32, 1, 1536, 512]
    assert found.attributes()["weights_reversed"] == 1
