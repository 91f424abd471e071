"""Alternatives in structural patterns: `any_of` and `optional` match as the spellings that they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
from structures import ACTIVATIONS, find, names, sentence

from hlo_dispatch.pattern.read_expression import ExpressionError, read_expression

XYZ = "\n".join(f"{name} = f32[4,8] parameter({number})" for number, name in enumerate("xyz")) + "\n"
TANH = "t = f32[4,8] tanh(x)\n"
MATCH = "gate = any_of(tanh(x), exponential(x))\ngate * y - optional(maximum(z, 0))"


def test_each_alternative_matches(tmp_path: Path) -> None:
    for opcode, matches in (("tanh", 1), ("exponential", 1), ("cosine", 0)):
        body = f"g = f32[4,8] {opcode}(x)\n p = f32[4,8] multiply(y, g)\n ROOT r = f32[4,8] subtract(p, z)"
        found = find(tmp_path, XYZ + body, MATCH)
        assert names(found) == [["x", "y", "z"]] * matches
    assert "2 of 4 operations matched" in sentence(found)


def test_an_optional_operation_may_be_missing(tmp_path: Path) -> None:
    clamped = "c = f32[] constant({0})\n cs = f32[4,8] broadcast(c), dimensions={{}}\n m = f32[4,8] maximum(cs, z)\n"
    body = XYZ + TANH + clamped + "p = f32[4,8] multiply(y, t)\n ROOT r = f32[4,8] subtract(p, m)"
    (match,) = find(tmp_path, body.format(0), MATCH).matches
    assert [node.name for node in match.covered] == ["t", "p", "m", "r"]
    (match,) = find(tmp_path, body.format(1), MATCH).matches
    assert [node.name for node in match.covered] == ["t", "p", "r"]
    assert [view.node.name for view in match.operands.values()] == ["x", "y", "m"]


def test_an_alternative_is_given_up_for_the_next(tmp_path: Path) -> None:
    """The first fits by itself, and then nothing else does."""
    body = XYZ + TANH + "p = f32[4,8] multiply(t, y)\n ROOT r = f32[4,8] subtract(p, x)"
    assert names(find(tmp_path, body, "any_of(a * b, tanh(b) * a) - b")) == [["y", "x"]]


def test_alternatives_of_the_result(tmp_path: Path) -> None:
    for body in ("p = f32[4,8] multiply(t, y)\n ROOT r = f32[4,8] subtract(p, z)",
                 "d = f32[4,8] divide(y, z)\n ROOT r = f32[4,8] multiply(d, t)"):  # fmt: skip
        match = "g = tanh(x)\nany_of(g * y - z, g * (y / z))"
        assert names(find(tmp_path, XYZ + TANH + body, match)) == [["x", "y", "z"]]


def test_a_parameter_is_bound_by_each_alternative(tmp_path: Path) -> None:
    body = XYZ + "l = f32[4,8] logistic(x)\n s = f32[4,8] multiply(x, l)\n ROOT r = f32[4,8] add(s, y)"
    match = "any_of(leaky_relu(x, slope), swish(x, slope)) + y"
    (found,) = find(tmp_path, body, match).matches
    assert found.attributes() == {"slope": 1.0}


def test_a_named_alternative_is_one_value_and_may_have_constraints(tmp_path: Path) -> None:
    body = XYZ + TANH + "s = f32[4,8] add(t, y)\n ROOT r = f32[4,8] divide(t, s)"
    match = "e = any_of(exponential(x), tanh(x))\ne / (e + y)"
    assert names(find(tmp_path, body, match)) == [["x", "y"]]
    other = XYZ + TANH + "u = f32[4,8] tanh(z)\n s = f32[4,8] add(u, y)\n ROOT r = f32[4,8] divide(t, s)"
    assert "%u is not e again" in sentence(find(tmp_path, other, match))
    assert not find(tmp_path, body, match, where="e: {single_use: true}").matches
    assert find(tmp_path, body, match, where="e: {rank: 2}").matches


@pytest.mark.parametrize(
    ("text", "size", "certain"),
    [
        ("x * y", 1, {"result"}),
        ("optional(negate(x)) * y", 2, {"result"}),
        ("a = negate(x)\nb = a * x\nany_of(a / y, b + y)", 3, {"a", "result"}),
        ("a = any_of(negate(x), tanh(x))\nb = a * y\na / b", 3, {"a", "b", "result"}),
    ],
)
def test_the_longest_alternatives_are_its_size(text: str, size: int, certain: set[str]) -> None:
    """Facts may only be asked of values that every match has."""
    expression = read_expression(text, ACTIVATIONS)
    assert (expression.size, set(expression.definitions)) == (size, certain)


@pytest.mark.parametrize("text", ["any_of() + x", "optional(x) + y", "optional(negate(x), 1)", "optional(tanh(x)) ",
                                  "any_of(x, tanh(x))", "optional(any_of(tanh(x), negate(x))) + x"])  # fmt: skip
def test_what_is_no_choice(text: str) -> None:
    with pytest.raises(ExpressionError):
        read_expression(text, ACTIVATIONS)
