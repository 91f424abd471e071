"""Epilogues in every spelling we know, compiled by XLA: whatever it makes of them, the kernel takes all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spellings

from side_by_side import Both, assert_agree, run_both

BINARIES: dict[str, list[Callable]] = {
    "add": [lambda y, o: y + o, lambda y, o: o + y, lambda y, o: y - (-o), lambda y, o: -(-y - o)],
    "subtract": [lambda y, o: y - o, lambda y, o: y + (-o), lambda y, o: -(o - y), lambda y, o: y + o * -1.0],
    "subtract from": [lambda y, o: o - y, lambda y, o: -(y - o), lambda y, o: o + (-y)],
    "multiply": [lambda y, o: y * o, lambda y, o: o * y, lambda y, o: -(y * -o)],
    "divide": [
        lambda y, o: y / (o * o + 1),
        lambda y, o: y * (1 / (o * o + 1)),
        lambda y, o: y * jnp.reciprocal(o * o + 1),
    ],
    "maximum": [jnp.maximum, lambda y, o: jnp.maximum(o, y), lambda y, o: -jnp.minimum(-y, -o)],
    "minimum": [jnp.minimum, lambda y, o: jnp.minimum(o, y), lambda y, o: -jnp.maximum(-y, -o)],
}
SHAPES = {"full": (24, 65), "per channel": (65,), "per row": (24, 1), "scalar": ()}
# Functions that are told apart only where they are numbers.
ABOVE_ZERO = ("log", "pow", "sqrt")


def values(number: int, shape: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(np.random.default_rng(number).standard_normal(shape) / 2, jnp.float32)


X, W = values(0, (24, 33)), values(1, (33, 65))


def check(both: Both) -> None:
    """One call, and nothing of what follows the product is left."""
    (region,) = both.report.candidates
    assert both.calls == 1
    assert (region.stopped_at, region.stopped_because) == ("", "the value is needed in memory"), region.formula
    assert_agree(both)


@pytest.fixture
def in_jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The spellings, which are written in NumPy, as programs."""
    monkeypatch.setattr(spellings, "np", jnp)
    monkeypatch.setattr(spellings, "erf", jax.scipy.special.erf)
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, known in spellings.SPELLINGS.items() for number in range(len(known))]
)
@pytest.mark.filterwarnings("ignore:.*float64.*")
@pytest.mark.usefixtures("in_jax")
def test_activations(name: str, number: int) -> None:
    spelling = spellings.SPELLINGS[name][number]
    is_above_zero = name.startswith(ABOVE_ZERO)

    def program(x, w):
        y = x @ w
        return spelling(jnp.abs(y) + 0.5 if is_above_zero else y, float)

    check(run_both(program, X, W))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "number"), [(n, i) for n, known in BINARIES.items() for i in range(len(known))])
def test_binaries(name: str, number: int, shape: str) -> None:
    spelling = BINARIES[name][number]
    check(run_both(lambda x, w, other: spelling(x @ w, other), X, W, values(2, SHAPES[shape])))


def test_every_spelling_is_one_of_three() -> None:
    assert min(len(known) for known in (*BINARIES.values(), *spellings.SPELLINGS.values())) >= 3
