"""Attention of any shape, arrangement and mask: dispatched it is as near to float64 as stock is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jax import nn

from side_by_side import run_both

HIDDEN = -3e4  # f16 has it
LENGTHS = st.one_of(st.integers(2, 9), st.integers(2, 70), st.sampled_from([16, 17, 48, 49, 97, 130, 197]))


@dataclass(frozen=True)
class Case:
    """softmax(softcap(scale·q·kᵀ) + bias, masks)·v by labels of dimensions: b batch, g groups of heads that share keys,
    h heads, t queries, s keys, d and e their sizes."""

    sizes: dict[str, int]
    query: str
    key: str
    value: str
    scores: str
    out: str
    bias: str | None
    """Dimensions that it has; it repeats along the others."""
    mask: str | None
    is_causal: bool
    window: int | None
    cap: float | None
    size: float
    """How large scores are."""
    dtype: str
    seed: int

    def arguments(self) -> list[np.ndarray]:
        """Query, key, value, what is added to scores, and which scores stay."""
        random = np.random.default_rng(self.seed)
        labels = (self.query, self.key, self.value, self.bias or "")
        made = [random.standard_normal([self.sizes[name] for name in part]) for part in labels]
        kept = random.random([self.sizes[name] for name in self.mask or ""]) < 0.7
        return [*(np.asarray(jnp.asarray(array, self.dtype)) for array in made), np.asarray(kept)]

    def compute(self, library: Any, query: Any, key: Any, value: Any, bias: Any, kept: Any) -> Any:
        """The program; for NumPy all of it in float64."""
        x, shape = library, [self.sizes[name] for name in self.scores]

        def spread(array: Any, names: str) -> Any:
            array = x.einsum(f"{names}->{''.join(n for n in self.scores if n in names)}", array)
            return array.reshape([self.sizes[name] if name in names else 1 for name in self.scores])

        def index(name: str) -> Any:
            places = [1] * len(shape)
            places[self.scores.index(name)] = -1
            return x.arange(self.sizes[name]).reshape(places)

        scores = x.einsum(f"{self.query},{self.key}->{self.scores}", query, key) * (self.size / self.sizes["d"] ** 0.5)
        if self.cap is not None:
            scores = x.tanh(scores / self.cap) * self.cap
        if self.bias is not None:
            scores = scores + spread(bias, self.bias)
        if self.mask is not None:
            scores = x.where(spread(kept * 1.0, self.mask) > 0, scores, HIDDEN)
        if self.is_causal:
            scores = x.where(index("t") >= index("s"), scores, HIDDEN)
        if self.window is not None:
            scores = x.where(index("t") - index("s") < self.window, scores, HIDDEN)
        axis = self.scores.index("s")
        if x is np:
            weights = np.exp(scores - scores.max(axis, keepdims=True))
            weights = weights / weights.sum(axis, keepdims=True)
        else:
            weights = nn.softmax(scores, axis=axis)
        return x.einsum(f"{self.scores},{self.value}->{self.out}", weights, value)


@st.composite
def cases(draw: Any) -> Case:
    def one_of(names: str) -> str:
        return draw(st.sampled_from(names.split()))

    def some(names: str) -> str | None:
        return draw(st.one_of(st.none(), st.lists(st.sampled_from(names), unique=True).map("".join)))

    sizes = {"b": draw(st.integers(1, 3)), "g": draw(st.integers(1, 3)), "h": draw(st.integers(1, 3))}
    sizes |= {"t": draw(LENGTHS), "s": draw(LENGTHS)}
    sizes |= {"d": draw(st.sampled_from([2, 7, 16, 33, 64])), "e": draw(st.sampled_from([2, 5, 16, 40]))}
    # As people write it; test_random_arrangements has them in any order.
    return Case(
        sizes, one_of("bghtd btghd tbghd"), one_of("bgsd bsgd sbgd bgds"), one_of("bgse bsge sbge"), "bghts",
        one_of("bghte btghe tbghe"),
        bias=some("bghts"), mask=some("bghts"), is_causal=draw(st.booleans()),
        window=draw(st.one_of(st.none(), st.integers(1, 40))), cap=draw(st.sampled_from([None, None, 3.0, 30.0])),
        size=draw(st.sampled_from([1.0, 1.0, 20.0])), dtype=draw(st.sampled_from(["float32", "bfloat16", "float16"])),
        seed=draw(st.integers(0, 2**31)),
    )  # fmt: skip


def error(got: np.ndarray, exact: np.ndarray) -> float:
    """Root of the mean square of what they differ by."""
    assert np.isfinite(got.astype(np.float64)).all()
    return root_mean_square(got.astype(np.float64) - exact)


def root_mean_square(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(array**2)))


@given(cases())
def test_no_further_from_float64_than_stock(case: Case) -> None:
    arguments = case.arguments()
    exact = case.compute(np, *(array.astype(np.float64) for array in arguments))
    both = run_both(lambda *inputs: case.compute(jnp, *inputs), *map(jnp.asarray, arguments))
    assert "own.attention" in both.text
    (stock,), (dispatched,) = both.stock, both.dispatched
    # Another order of sums may lose what one rounding of the result does, or one of the scores, and one of f32 of what
    # is summed, which may be larger than its sum; not more.
    rounding = float(jnp.finfo(jnp.dtype(case.dtype)).eps) * root_mean_square(exact)
    summed = float(jnp.finfo(jnp.float32).eps) * root_mean_square(np.asarray(arguments[2], "float64"))
    assert error(dispatched, exact) <= error(stock, exact) + (rounding + summed) * case.size
