"""Recognition: every activation in its spellings, wrong ones refused, in every element type."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import SPELLINGS, Spelling, logistic

from hlo_dispatch.pattern import TOLERANCES, Recognised, Recogniser, Table

ROUNDING = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
CASES = [
    pytest.param(name, spelling, id=f"{name}-{number}")
    for name, spellings in SPELLINGS.items()
    for number, spelling in enumerate(spellings)
]


def rounding(dtype: str) -> Callable[[float], float]:
    return lambda value: float(np.asarray(value).astype(ROUNDING[dtype]))


def recognise(
    recogniser: Recogniser, spelling: Spelling, dtype: str = "f32", constants: tuple[float, ...] = ()
) -> Recognised | None:
    probes = recogniser.probes(constants)
    with np.errstate(all="ignore"):
        values = np.asarray(spelling(probes, rounding(dtype)), dtype=np.float64)
    return recogniser.recognise(probes, values, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("name", "spelling"), CASES)
def test_every_spelling(recogniser: Recogniser, name: str, spelling: Spelling, dtype: str) -> None:
    found = recognise(recogniser, spelling, dtype, constants=(0.5, 6.0, 0.044715, 88.7))
    assert found is not None
    family, _, numbers = name.partition("(")
    assert found.name == family
    if dtype == "f32" or "leaky" not in name:
        assert found.describe() == name
    else:
        assert found.parameters["alpha"] == rounding(dtype)(float(numbers.rstrip(")")))


def test_every_shipped_activation_has_three_spellings(table: Table) -> None:
    spelled = {name.partition("(")[0]: len(spellings) for name, spellings in SPELLINGS.items()}
    assert {a.name for a in table.activations} <= set(spelled)
    assert min(spelled.values()) >= 3


def test_its_own_formula_is_recognised(table: Table, recogniser: Recogniser) -> None:
    probes = recogniser.probes()
    for activation in table.activations:
        examples = {p.name: float(np.float32(p.example)) for p in activation.parameters}
        values = activation.formula.evaluate({"x": probes, **examples})
        found = recogniser.recognise(probes, values, 2e-6)
        assert found is not None
        assert (found.name, dict(found.parameters)) == (activation.name, examples)


WRONG: dict[str, Spelling] = {
    "constant": lambda x, c: 0 * x + 3,
    "zero": lambda x, c: np.zeros_like(x),
    "softsign": lambda x, c: x / (1 + np.abs(x)),
    "sin": lambda x, c: np.sin(x),
    "gelu with a wrong constant": lambda x, c: 0.5 * x * (1 + np.tanh(c(0.7978845) * (x + c(0.06) * x**3))),
    "scaled gelu": lambda x, c: 0.51 * x * (1 + np.tanh(c(0.7978845) * (x + c(0.044715) * x**3))),
    "scaled sigmoid": lambda x, c: c(1.01) * logistic(x),
    "scaled tanh": lambda x, c: c(0.996) * np.tanh(x),
    "shifted relu": lambda x, c: np.maximum(x, 0) + c(0.01),
    "raised relu": lambda x, c: np.maximum(x, c(0.001)),
    "relu from 1": lambda x, c: np.where(x > 1, x, 0),
    "relu up to 7": lambda x, c: np.where(x > 7, 7.5, np.maximum(x, 0)),
    "half-open clip": lambda x, c: np.minimum(x, 6),
    "tanh with a hole": lambda x, c: np.where(np.abs(x - 30) < 1, 0, np.tanh(x)),
    "relu with a hole": lambda x, c: np.where((x > 1000) & (x < 1010), 0, np.maximum(x, 0)),
    "relu with a hole at a quotient": lambda x, c: np.where(np.abs(3 * x - 400) < 1, 0, np.maximum(x, 0)),
    "guarded sqrt": lambda x, c: np.where(x > 0, np.sqrt(x), 0),
    "sqrt of |x|": lambda x, c: np.sqrt(np.abs(x)),
    "damped sqrt": lambda x, c: np.sqrt(x + c(1e-5)),
    "guarded log": lambda x, c: np.log(np.maximum(x, c(1e-6))),
    "round half away": lambda x, c: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "relu squared": lambda x, c: np.maximum(x, 0) ** 2,
    "selu": lambda x, c: c(1.0507) * np.where(x > 0, x, c(1.67326) * np.expm1(x)),
    "elu of one constant, slope of another": lambda x, c: np.where(x > 0, c(1.1) * x, np.expm1(x)),
    "always nan": lambda x, c: np.full_like(x, np.nan),
    "always inf": lambda x, c: np.full_like(x, np.inf),
    "nan for negative": lambda x, c: np.where(x < 0, np.nan, x),
}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_functions_are_refused(recogniser: Recogniser, name: str, dtype: str) -> None:
    constants = (3.0, 400.0, 1.0) if "quotient" in name else (29.0, 31.0, 1000.0, 1010.0, 7.0)
    assert recognise(recogniser, WRONG[name], dtype, constants) is None


def test_the_two_gelus_are_never_confused(recogniser: Recogniser) -> None:
    for name in ("gelu_tanh", "gelu_erf"):
        for spelling in SPELLINGS[name]:
            found = recognise(recogniser, spelling)
            assert found is not None
            assert found.name == name
            assert found.error < 5e-7


def test_simplest_of_equal_fits(recogniser: Recogniser) -> None:
    for spelling, name in (
        (lambda x, c: np.maximum(0.0 * x, x), "relu"),
        (lambda x, c: np.where(x > 0, x, 1.0 * x), "identity"),
        (lambda x, c: np.where(x > 0, x, -1.0 * x), "abs"),
        (lambda x, c: 1.0 * x**2.0, "square"),
        (lambda x, c: 0.5 * x, "linear"),
        (lambda x, c: np.clip(x, -3e38, 3e38), "clip"),
    ):
        found = recognise(recogniser, spelling)
        assert found is not None
        assert found.name == name


def test_identity_needs_no_post_op(recogniser: Recogniser) -> None:
    found = recognise(recogniser, lambda x, c: x + 0)
    assert found is not None
    assert found.is_identity
    assert found.algorithm == ""


def test_nan_propagation_is_recorded(recogniser: Recogniser) -> None:
    propagating = recognise(recogniser, lambda x, c: np.maximum(x, 0))
    selecting = recognise(recogniser, lambda x, c: np.where(x > 0, x, 0))
    assert propagating is not None
    assert propagating.propagates_nan
    assert selecting is not None
    assert not selecting.propagates_nan


# Parameters as programs have them: decimal, rounded to single precision, not absurdly close to degenerate.
def reals(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=32).map(lambda v: float(np.float32(v))).filter(lambda v: abs(v) > 1e-3)


def found_parameters(recogniser: Recogniser, spelling: Spelling, constants: tuple[float, ...]) -> list[float]:
    found = recognise(recogniser, spelling, constants=constants)
    assert found is not None
    return [found.name, *found.parameters.values()]


@settings(max_examples=60, deadline=None)
@given(low=reals(-50, 50), width=reals(0.0625, 100))
def test_any_clip(recogniser: Recogniser, low: float, width: float) -> None:
    high = float(np.float32(low + width))
    found = found_parameters(recogniser, lambda x, c: np.minimum(np.maximum(x, low), high), (low, high))
    if found[0] == "hard_sigmoid":
        assert (low, high) == (0, 1)
    else:
        assert found == ["clip", low, high]


@settings(max_examples=60, deadline=None)
@given(alpha=reals(-3, 3).filter(lambda a: abs(abs(a) - 1) > 1e-3))
def test_any_slope_elu_swish(recogniser: Recogniser, alpha: float) -> None:
    leaky = found_parameters(recogniser, lambda x, c: np.where(x > 0, x, alpha * x), (alpha,))
    assert leaky == ["leaky_relu", alpha]
    elu = found_parameters(recogniser, lambda x, c: np.where(x > 0, x, alpha * (np.exp(x) - 1)), (alpha,))
    assert elu == ["elu", pytest.approx(alpha, rel=1e-6)]
    swish = found_parameters(recogniser, lambda x, c: x / (1 + np.exp(-alpha * x)), (alpha,))
    assert swish == ["swish", pytest.approx(alpha, rel=1e-6)]
    softplus = found_parameters(recogniser, lambda x, c: np.logaddexp(0, alpha * x) / alpha, (alpha,))
    assert softplus == ["softplus", pytest.approx(alpha, rel=1e-6)]


@settings(max_examples=60, deadline=None)
@given(alpha=reals(-100, 100), beta=st.floats(-100, 100, width=32))
def test_any_linear(recogniser: Recogniser, alpha: float, beta: float) -> None:
    name, *numbers = found_parameters(recogniser, lambda x, c: alpha * x + beta, (alpha, beta))
    if name == "identity":
        assert abs(alpha - 1) < 1e-6
    elif name == "linear":
        assert numbers == [pytest.approx(alpha, rel=1e-5), pytest.approx(beta, rel=1e-5, abs=1e-6)]
    else:
        assert (name, abs(beta) < 1e-6) == ("pow", True)


@settings(max_examples=60, deadline=None)
@given(alpha=reals(0.0625, 1), beta=reals(0.25, 0.75))
def test_any_hard_sigmoid_and_hard_swish(recogniser: Recogniser, alpha: float, beta: float) -> None:
    near = [pytest.approx(alpha, rel=1e-5), pytest.approx(beta, rel=1e-5)]
    gate = found_parameters(recogniser, lambda x, c: np.clip(alpha * x + beta, 0, 1), (alpha, beta))
    assert gate == ["hard_sigmoid", *near]
    unit = found_parameters(recogniser, lambda x, c: x * np.clip(alpha * x + beta, 0, 1), (alpha, beta))
    assert unit == ["hard_swish", *near]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=40))
def test_any_constants_give_usable_probes(recogniser: Recogniser, constants: list[float]) -> None:
    probes = recogniser.probes(constants)
    found = recogniser.recognise(probes, np.maximum(probes, 0), 2e-6)
    assert found is not None
    assert found.name == "relu"


def test_constants_are_bracketed(recogniser: Recogniser) -> None:
    probes = recogniser.probes([1234.5, 4321.0])
    for constant in (1234.5, -1234.5, 4321.0, -4321.0):
        near = np.abs(probes - constant) < abs(constant) * 1e-4
        assert (probes[near] < constant).any()
        assert (probes[near] > constant).any()
    assert ((probes > 2000) & (probes < 4000)).any()


def test_nearest_says_where(recogniser: Recogniser) -> None:
    probes = recogniser.probes()
    values = np.where(probes > 7, 7.5, np.maximum(probes, 0))
    nearest = recogniser.nearest(probes, values, 2e-6)
    assert nearest is not None
    assert nearest.sentence() == ("closest is clip(0, 7.5), but at x = 7.25 the region gives 7.5 where it gives 7.25")
    scaled = recogniser.nearest(probes, 1.01 * logistic(np.clip(probes, -700, 700)), 2e-6)
    assert scaled is not None
    assert scaled.name == "sigmoid"


def test_foreign_probes_are_our_bug(recogniser: Recogniser) -> None:
    probes = recogniser.probes().copy()
    probes[3] = 17.0
    with pytest.raises(ValueError, match="not made by this recogniser"):
        recogniser.recognise(probes, probes, 2e-6)
    with pytest.raises(ValueError, match="one float64 value per probe"):
        recogniser.recognise(recogniser.probes(), np.zeros(3), 2e-6)


@pytest.mark.timing
def test_speed(recogniser: Recogniser) -> None:
    probes = recogniser.probes((0.5, 0.044715, 0.79788))
    with np.errstate(all="ignore"):
        regions = [np.maximum(probes, 0), probes * logistic(probes), np.tanh(probes), np.sin(probes)]
    best = math.inf
    for _ in range(30):
        start = time.perf_counter()
        for values in regions:
            recogniser.recognise(probes, values, 2e-6)
        best = min(best, (time.perf_counter() - start) / len(regions))
    assert best < 1e-3  # 0.1 ms on a quiet machine; this only catches a wrong order of growth
