"""The formula language: what it computes, what it refuses and where it points."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_dispatch.pattern.formula import FormulaError, parse
from hlo_dispatch.pattern.functions import FUNCTIONS

X = np.array([-3.0, -0.0, 0.0, 0.5, 2.0, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize(
    ("text", "x", "expected"),
    [
        ("max(x, 0, -1)", -2.0, 0.0),
        ("min(x, 6)", 7.0, 6.0),
        ("-x**2", 3.0, -9.0),
        ("2**-x", 1.0, 0.5),
        ("where(0 < x <= 1 and not(x == 0.5), 1, 2)", 0.5, 2.0),
        ("where(x < 0 or x > 2, 1, 2)", 3.0, 1.0),
        ("erf(x)", 0.3, math.erf(0.3)),
        ("erfc(x) + rsqrt(4)", 0.3, math.erfc(0.3) + 0.5),
        ("softplus(x)", 1000.0, 1000.0),
        ("sigmoid(x)", 0.0, 0.5),
        ("round(x)", 2.5, 2.0),
        ("pi * x - inf", 1.0, -math.inf),
        ("  x\n + 1", 1.0, 2.0),
    ],
)
def test_evaluates(text: str, x: float, expected: float) -> None:
    assert parse(text, ["x"]).evaluate({"x": np.float64(x)}) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_takes_arrays_without_a_warning(name: str) -> None:
    function = FUNCTIONS[name]
    arguments = ["x > 0" if position in function.conditions else "x" for position in range(function.arity)]
    call = f"{name}({', '.join(arguments)})"
    formula = parse(f"where({call}, 1, 0)" if function.yields_condition else call, ["x"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert formula.evaluate({"x": X}).shape == X.shape


@pytest.mark.parametrize(
    "attack",
    [
        "__import__('os').system('true')",
        "x.__class__",
        "x.tofile('/tmp/x')",
        "().__class__.__bases__[0].__subclasses__()",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "{x: 1}",
        "x[0]",
        "f'{x}'",
        "(y := x)",
        "x if x else 1",
        "exec(x)",
        "open(x)",
        "getattr(x, x)",
        "max(*x)",
        "exp(x=1)",
        "exp",
        "f(1)",
        "True",
        "None",
        "1j * x",
        "'a' * x",
        "b'a'",
        "...",
        "await x",
        "yield x",
        "x; x",
        "import os",
        "x @ x",
        "x // 2",
        "x % 2",
        "x & 1",
        "~x",
        "x is x",
        "x in x",
        "(x,)",
        "",
        "x\0",
        "-" * 900 + "x",
        "(" * 400 + "x" + ")" * 400,
        "x" + "+x" * 600,
        "9" * 500,
        "where(x, 1, 2)",
        "(x > 0) + 1",
        "x > 0",
        "not x",
        "__builtins__",
        "_Name(x)",
    ],
)
def test_refuses_everything_else(attack: str) -> None:
    with pytest.raises(FormulaError):
        parse(attack, ["x"])


def test_no_number_makes_it_hang_or_raise() -> None:
    formula = parse("x + 9**9**9**9 + 1 / 0 + (-1)**0.5", ["x"])
    assert np.isnan(formula.evaluate({"x": np.float64(1)}))


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("x * sigmiod(x)", 4, "unknown function 'sigmiod'; did you mean 'sigmoid'?"),
        ("max(x, alhpa)", 7, "unknown name 'alhpa'; did you mean 'alpha'?"),
        ("x ^ 2", 0, "the operator ^ is not allowed; a power is written x**2 or pow(x, 2)"),
        ("1 + clip(x, 0)", 4, "clip with 2 arguments; it takes 3"),
        ("1 + max(x)", 4, "max with 1 arguments; it takes at least 2"),
        ("where(x, 1, 2)", 6, "a number where a condition is wanted; write a comparison such as x > 0"),
        ("x + (x > 0)", 5, "a condition where a number is wanted; write where(condition, a, b)"),
        ("x * (1 + 2", 4, "not an expression: '(' was never closed"),
        ("  x + y", 6, "unknown name 'y'; known are: alpha, x, pi, inf"),
    ],
)
def test_points_at_the_guilty_character(text: str, offset: int, message: str) -> None:
    with pytest.raises(FormulaError) as caught:
        parse(text, ["x", "alpha"])
    assert (caught.value.offset, str(caught.value)) == (offset, message)


def test_samples_are_collected_and_looked_up() -> None:
    formula = parse("f(1) - f(-inf) * f(2 / 4) + f(1)", [], samples=True)
    assert formula.samples == (1.0, -math.inf, 0.5)
    assert formula.evaluate({"f": {1.0: 5.0, -math.inf: 2.0, 0.5: 3.0}}) == 4.0


@pytest.mark.parametrize("text", ["f(x)", "f()", "f(1, 2)", "f(f(1))", "f(0 / 0)", "f"])
def test_bad_samples_are_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        parse(text, [], samples=True)


@given(st.text(alphabet="xf()+-*/.,0123456789 <>=_:[]{}'\"\\\nandorte", max_size=60))
def test_any_text_is_a_formula_or_a_formula_error(text: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own remarks on literals such as 0or
            formula = parse(text, ["x"])
    except FormulaError:
        return
    assert np.broadcast_to(formula.evaluate({"x": X}), X.shape).dtype.kind in "fi"
