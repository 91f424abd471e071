"""Formulas of regions in reports: a product or convolution with its epilogue."""

from __future__ import annotations

import pytest

from matching import only_match

F = "f32[1,4,4,16]{3,2,1,0}"
HEAD = f"""
ENTRY main {{ x = f32[1,4,4,8]{{3,2,1,0}} parameter(0)
  w = f32[3,3,8,16]{{3,2,1,0}} parameter(1)
  b = f32[16]{{0}} parameter(2)
  r = {F} parameter(3)
  s = f32[16]{{0}} parameter(4)
  t = {F} parameter(5)
  bias = {F} broadcast(b), dimensions={{3}}
  scale = {F} broadcast(s), dimensions={{3}}
  zero = f32[] constant(0)
  zeros = {F} broadcast(zero), dimensions={{}}
  six = f32[] constant(6)
  sixes = {F} broadcast(six), dimensions={{}}
  conv = {F} convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
"""


def formula(*steps: str) -> str:
    """Of a chain; each step reads the one before it as %value."""
    body, value = "", "conv"
    for number, step in enumerate(steps):
        root = "ROOT " if number == len(steps) - 1 else ""
        body += f"  {root}y{number} = {F} {step.replace('value', value)}\n"
        value = f"y{number}"
    return only_match(f"{HEAD}{body} }}").formula


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["sine(value)"], "conv(x, w)"),
        (["maximum(value, zeros)"], "relu(conv(x, w))"),
        (["add(value, bias)"], "conv(x, w) + b"),
        (["add(value, bias)", "maximum(zeros, value)"], "relu(conv(x, w) + b)"),
        (["add(value, bias)", "add(value, r)"], "(conv(x, w) + b) + r1"),
        (["add(value, bias)", "add(value, r)", "maximum(value, zeros)"], "relu((conv(x, w) + b) + r1)"),
        (["multiply(value, scale)", "add(value, bias)"], "(conv(x, w) · v1) + v2"),
        (["multiply(value, r)", "add(value, t)"], "(conv(x, w) · r1) + r2"),
        (["maximum(value, r)", "tanh(value)"], "tanh(conv(x, w) max r1)"),
        (["subtract(r, value)"], "r1 - conv(x, w)"),
        (["tanh(value)", "divide(value, scale)"], "tanh(conv(x, w)) / v1"),
        (["clamp(zeros, value, sixes)"], "clip(0, 6)[conv(x, w)]"),
        (["add(value, bias)", "clamp(zeros, value, sixes)", "multiply(value, r)"], "clip(0, 6)[conv(x, w) + b] · r1"),
    ],
)
def test_formula(steps: list[str], expected: str) -> None:
    assert formula(*steps) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["add(value, bias)", "subtract(r, value)"], "r1 - (conv(x, w) + b)"),
        (["add(value, bias)", "divide(r, value)"], "r1 / (conv(x, w) + b)"),
    ],
)
def test_a_sum_keeps_its_parentheses_behind_a_minus(steps: list[str], expected: str) -> None:
    assert formula(*steps) == expected


def test_a_product() -> None:
    text = "ENTRY main { x = f32[2,2]{1,0} parameter(0)\n ROOT d = f32[2,2]{1,0} dot(x, x), \
lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
    assert only_match(text).formula == "x @ w"
