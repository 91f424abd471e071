"""A refusal is neither true nor false; each reason why no kernel takes a transposed convolution is said."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import NoTruthValue, Refusal, Unavailable
from hlo_dispatch.match.match import Match
from hlo_dispatch.selection.decide import Decision
from matching import flattened, matches

REFUSAL = Refusal("policy", "because")


@pytest.mark.parametrize(
    "answer",
    [REFUSAL, Unavailable("oneMKL", "install it"), Decision(None, "because", REFUSAL)],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_has_no_truth_value(answer: NoTruthValue) -> None:
    name = type(answer).__name__
    sentence = rf"a {name} is neither true nor false: ask isinstance\(answer, {name}\), or whether it is None"
    with pytest.raises(TypeError, match=sentence):
        bool(answer)
    with pytest.raises(TypeError, match=sentence):
        print(answer or "the next question")
    with pytest.raises(TypeError, match=sentence):
        assert not answer


def transposed(x: str = "f32[1,8,8,4]", w: str = "f32[3,3,4,8]", y: str = "f32[1,22,22,8]", behind: str = "") -> str:
    window = "window={size=3x3 pad=1_1x1_1 lhs_dilate=3x3}, dim_labels=b01f_01io->b01f"
    x, w, y = (f"{shape}{{3,2,1,0}}" for shape in (x, w, y))
    return f"""
ENTRY main {{ x = {x} parameter(0)
  w = {w} parameter(1)
  other = {w} negate(w)
  conv = {y} convolution(x, w), {window}{behind}
  ROOT both = ({y}, {w}) tuple(conv, other) }}
"""


def test_a_transposed_convolution_is_taken() -> None:
    assert isinstance(matches(flattened(transposed()))["conv"], Match)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            transposed(behind=", control-predecessors={other}"),
            Refusal("control-dependency", "the instruction has control predecessors", "conv"),
        ),
        (
            transposed(x="f32[<=2,8,8,4]", y="f32[<=2,22,22,8]"),
            Refusal("dynamic-shape", "f32[2,22,22,8]{3,2,1,0} has a dimension known only at run time", "conv"),
        ),
        (
            transposed(x="f32[0,8,8,4]", y="f32[0,22,22,8]"),
            Refusal("zero-size", "f32[0,22,22,8]{3,2,1,0} has no elements", "conv"),
        ),
        (
            transposed("f64[1,8,8,4]", "f64[3,3,4,8]", "f64[1,22,22,8]"),
            Refusal("dtype-unsupported", "the anchor transposed_convolution takes f32 or bf16 or f16, not f64", "x"),
        ),
    ],
    ids=lambda value: value.code if isinstance(value, Refusal) else "",
)
def test_what_no_kernel_takes_is_refused(text: str, refusal: Refusal) -> None:
    assert matches(flattened(text))["conv"] == refusal
