"""Mask redirection: comparisons of a bounded value that read a kernel's result instead."""

from __future__ import annotations

import pytest
from running import calls, rewritten_and_run

from hlo_dispatch.match.match import Match
from hlo_dispatch.passes.mask_redirection import redirect_masks
from matching import flattened, matches, node

F, P = "f32[4,16]{1,0}", "pred[4,16]{1,0}"
BOUNDS = {
    "relu": f"{F} maximum(z, zeros)",
    "relu mirrored": f"{F} maximum(zeros, z)",
    "ceiling": f"{F} minimum(z, sixes)",
    "relu6": f"{F} clamp(zeros, z, sixes)",
}
CONSTANTS = {"zeros": 0, "sixes": 6, "threes": 3, "sevens": 7, "below": -1}


def program(bound: str, comparison: str, direction: str, rest: str = "", results: str = "r, m") -> str:
    """z, bounded to r; m compares z with a constant; `rest` are more instructions."""
    constants = "".join(
        f"{name}.0 = f32[] constant({value})\n {name} = {F} broadcast({name}.0), dimensions={{}}\n"
        for name, value in CONSTANTS.items()
    )
    shapes = ", ".join(P if part == "m" else F for part in results.split(", "))
    return f"""
ENTRY main {{ x = f32[4,8]{{1,0}} parameter(0)
  w = f32[8,16]{{1,0}} parameter(1)
  {constants} z = {F} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  r = {BOUNDS[bound]}
  m = {P} compare({comparison}), direction={direction}
  {rest} ROOT t = ({shapes}) tuple({results}) }}
"""


def asks(text: str) -> str:
    """Which of its two tensors %m compares: the value or the result."""
    graph = flattened(text)
    redirect_masks(graph)
    mask, value, result = (node(graph, name) for name in "mzr")
    asked = result if result in mask.operands else value
    assert asked in mask.operands
    assert (mask in result.users, mask in value.users) == (asked is result, asked is value)
    return asked.name


@pytest.mark.parametrize(
    ("bound", "comparison", "direction"),
    [
        ("relu", "z, zeros", "GT"),
        ("relu", "zeros, z", "LT"),
        ("relu", "z, zeros", "LE"),
        ("relu", "z, threes", "GT"),
        ("relu", "z, threes", "LT"),
        ("relu", "threes, z", "GE"),
        ("relu mirrored", "z, zeros", "GT"),
        ("ceiling", "z, sixes", "LT"),
        ("ceiling", "z, sixes", "GE"),
        ("relu6", "z, zeros", "GT"),
        ("relu6", "z, sixes", "LT"),
        ("relu6", "z, threes", "GE"),
    ],
)
def test_the_result_answers(bound: str, comparison: str, direction: str) -> None:
    text = program(bound, comparison, direction)
    assert asks(text) == "r"
    (match,) = matches(flattened(text)).values()
    assert isinstance(match, Match)
    assert match.output.name == "r"


@pytest.mark.parametrize(
    ("bound", "comparison", "direction"),
    [
        ("relu", "z, zeros", "GE"),
        ("relu", "z, zeros", "LT"),
        ("relu", "z, zeros", "EQ"),
        ("relu", "z, below", "GT"),
        ("ceiling", "z, sixes", "GT"),
        ("ceiling", "z, sixes", "LE"),
        ("relu6", "z, sixes", "GT"),
        ("relu6", "z, zeros", "GE"),
        ("relu6", "z, sevens", "LT"),
        ("relu", "z, w16", "GT"),
    ],
)
def test_the_result_does_not_know(bound: str, comparison: str, direction: str) -> None:
    text = program(bound, comparison, direction).replace("z = ", f"w16 = {F} parameter(2)\n z = ", 1)
    assert asks(text) == "z"


def test_a_value_with_another_reader_is_asked_itself() -> None:
    assert asks(program("relu", "z, zeros", "GT", f"s = {F} tanh(z)\n", "r, m, s")) == "z"
    assert asks(program("relu", "z, zeros", "GT", results="r, m, z")) == "z"


def test_a_value_that_is_compared_with_itself() -> None:
    assert asks(program("relu", "z, z", "GT")) == "z"


@pytest.mark.parametrize(("bound", "direction"), [("relu", "GT"), ("relu6", "GT"), ("ceiling", "LT")])
def test_both_forms_run_alike(bound: str, direction: str) -> None:
    """A fusion that reads the value is rebuilt to read the result, and the kernel takes the bound."""
    constant = "sixes" if bound == "ceiling" else "zeros"
    selected = f"d = {F} parameter(2)\n s = {F} select(m, d, zeros)\n"
    module = rewritten_and_run(program(bound, f"z, {constant}", direction, selected, "r, s"))
    (call,) = calls(module)
    assert "post_op_0" in call


HALF = {"bf16": "bf16[4,16]{1,0}", "f16": "f16[4,16]{1,0}"}


def half_program(kind: str, low: float) -> str:
    """As JAX 0.10 writes max(z, low) and its mask in half precision: widened, computed, rounded and widened again."""
    narrow = HALF[kind]
    return f"""
ENTRY main {{ x = f32[4,8]{{1,0}} parameter(0)
  w = f32[8,16]{{1,0}} parameter(1)
  low = f32[] constant({low})
  lows = {F} broadcast(low), dimensions={{}}
  dot = {F} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  rounded = {narrow} convert(dot)
  z = {F} convert(rounded)
  r = {F} maximum(z, lows)
  kept = {narrow} convert(r)
  again = {F} convert(kept)
  m = {P} compare(z, lows), direction=GT
  ROOT t = ({F}, {P}) tuple(again, m) }}
"""


@pytest.mark.parametrize(("kind", "low"), [("bf16", 0), ("bf16", 0.5), ("f16", 0), ("f16", 0.25)])
def test_half_precision_asks_behind_the_rounding(kind: str, low: float) -> None:
    graph = flattened(half_program(kind, low))
    redirect_masks(graph)
    assert node(graph, "again") in node(graph, "m").operands
    (match,) = matches(graph).values()
    assert match.output.name == "kept"


def test_a_bound_that_half_precision_lacks_is_not_asked_behind_the_rounding() -> None:
    # 0.1 becomes 0.10009765625 in bfloat16, which is more than 0.1.
    graph = flattened(half_program("bf16", 0.1))
    redirect_masks(graph)
    assert node(graph, "again") not in node(graph, "m").operands
