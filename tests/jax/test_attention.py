"""Attention as people write it: one call, the numbers of float64 NumPy and of stock, and no transposes of heads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import nn

import hlo_dispatch
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare import comparison
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.store import Store
from side_by_side import assert_agree, assert_close, run_both

attend = nn.dot_product_attention
FORMULA = "softmax({})·v"
LOWEST = float(np.finfo(np.float32).min)


def random_inputs(dtype: str, *shapes: tuple[int, ...]) -> list[jax.Array]:
    """New ones every time: what is wrong anywhere shows some day."""
    random = np.random.default_rng()
    return [jnp.asarray(random.standard_normal(shape), dtype) for shape in shapes]


def random_mask(*shape: int) -> jax.Array:
    """Some of it, in every row the first one."""
    return jnp.asarray(np.random.default_rng().random(shape) < 0.6).at[..., 0].set(True)


def in_float64(q, k, v, scores: Callable = lambda s: s) -> np.ndarray:
    """softmax(scores(q·kᵀ / sqrt(d)))·v of arrays (batch, length, heads, d), in float64."""
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    k, v = (np.repeat(array, q.shape[2] // array.shape[2], axis=2) for array in (k, v))
    s = scores(np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1]))
    powers = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhts,bshd->bthd", powers / powers.sum(-1, keepdims=True), v)


def check(program: Callable, arguments: list, wanted: np.ndarray, text: str) -> str:
    """Compare with stock and with float64; returns the dispatched program's text."""
    both = run_both(program, *arguments)
    assert [region.formula for region in both.report.dispatched] == [FORMULA.format(text)]
    assert_agree(both)
    (got,) = both.dispatched
    assert_close(got.astype(np.float64), wanted, {"float32": 5e-6, "bfloat16": 2e-2, "float16": 4e-3}[got.dtype.name])
    return both.text


def scaled(d: int) -> str:
    return f"{str(np.float32(1 / np.sqrt(d))).removesuffix('.0')}·q·kᵀ"


# --- jax.nn.dot_product_attention -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("batch", "queries", "keys", "heads", "d"),
    [
        (1, 1, 7, 2, 8),
        (2, 33, 49, 4, 32),
        (1, 197, 197, 3, 64),
        (3, 7, 130, 2, 40),
        (1, 128, 77, 5, 17),
        (2, 64, 1, 2, 8),
    ],
)
def test_plain(batch: int, queries: int, keys: int, heads: int, d: int, dtype: str) -> None:
    arguments = random_inputs(dtype, (batch, queries, heads, d), (batch, keys, heads, d), (batch, keys, heads, d))
    both = run_both(attend, *arguments)
    assert_agree(both)
    assert_close(both.dispatched[0].astype(np.float64), in_float64(*arguments), 2e-2 if dtype != "float32" else 5e-6)
    if min(keys, heads, queries) > 1:
        assert [region.formula for region in both.report.dispatched] == [FORMULA.format(scaled(d))]
        assert " transpose(" not in both.text
        assert " exponential(" not in both.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("queries", "keys"), [(33, 33), (5, 61), (61, 5), (130, 257)])
def test_causal(queries: int, keys: int, dtype: str) -> None:
    arguments = random_inputs(dtype, (2, queries, 3, 16), (2, keys, 3, 16), (2, keys, 3, 16))
    kept = np.arange(queries)[:, None] >= np.arange(keys)
    wanted = in_float64(*arguments, scores=lambda s: np.where(kept, s, LOWEST))
    check(lambda q, k, v: attend(q, k, v, is_causal=True), arguments, wanted, f"causal({scaled(16)})")


@pytest.mark.parametrize("window", [(7, 3), (0, 0), (40, 0)])
def test_window(window: tuple[int, int]) -> None:
    arguments = random_inputs("float32", (2, 33, 3, 16), (2, 33, 3, 16), (2, 33, 3, 16))
    distance = np.arange(33)[:, None] - np.arange(33)
    kept = (distance <= window[0]) & (distance >= -window[1])
    wanted = in_float64(*arguments, scores=lambda s: np.where(kept, s, LOWEST))
    both = run_both(lambda q, k, v: attend(q, k, v, local_window_size=window), *arguments)
    assert_agree(both)
    assert_close(both.dispatched[0].astype(np.float64), wanted, 5e-6)
    (region,) = both.report.dispatched
    assert "window(" in region.formula
    assert "causal(" in region.formula
    assert " compare(" not in both.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 1, 33, 49), (2, 1, 1, 49), (1, 3, 33, 49), (2, 3, 33, 49), (1, 1, 33, 1)])
def test_masks(shape: tuple[int, ...], dtype: str) -> None:
    mask = random_mask(*shape)
    arguments = random_inputs(dtype, (2, 33, 3, 16), (2, 49, 3, 16), (2, 49, 3, 16))
    wanted = in_float64(*arguments, scores=lambda s: np.where(np.asarray(mask), s, LOWEST))
    text = check(lambda q, k, v, m: attend(q, k, v, mask=m), [*arguments, mask], wanted, f"mask({scaled(16)})")
    assert " select(" not in text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 3, 33, 49), (1, 3, 33, 49), (2, 1, 1, 49), (1, 3, 1, 1)])
def test_biases(shape: tuple[int, ...], dtype: str) -> None:
    *arguments, bias = random_inputs(dtype, (2, 33, 3, 16), (2, 49, 3, 16), (2, 49, 3, 16), shape)
    wanted = in_float64(*arguments, scores=lambda s: s + np.asarray(bias, np.float64))
    check(lambda q, k, v, b: attend(q, k, v, bias=b), [*arguments, bias], wanted, f"{scaled(16)} + b")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("heads", [1, 2])
def test_grouped_heads_share_keys_in_memory(heads: int, dtype: str) -> None:
    arguments = random_inputs(dtype, (2, 33, 6, 16), (2, 49, heads, 16), (2, 49, heads, 16))
    kept = np.arange(33)[:, None] >= np.arange(49)
    wanted = in_float64(*arguments, scores=lambda s: np.where(kept, s, LOWEST))
    text = check(lambda q, k, v: attend(q, k, v, is_causal=True), arguments, wanted, f"causal({scaled(16)})")
    assert " broadcast(" not in text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("heads", [2, 6])
def test_one_row_against_a_cache(heads: int, dtype: str) -> None:
    arguments = random_inputs(dtype, (2, 1, 6, 16), (2, 300, heads, 16), (2, 300, heads, 16))
    lengths = jnp.asarray([17, 290])
    kept = np.arange(300) < np.asarray(lengths)[:, None, None, None]
    wanted = in_float64(*arguments, scores=lambda s: np.where(kept, s, LOWEST))
    check(
        lambda q, k, v, n: attend(q, k, v, key_value_seq_lengths=n),
        [*arguments, lengths],
        wanted,
        f"mask({scaled(16)})",
    )


# --- other spellings --------------------------------------------------------------------------------------------


def scores(q, k):
    return jnp.einsum("bthd,bshd->bhts", q, k)


def weighted(weights, v):
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def masked_by_sum(q, k, v):
    mask = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool))
    return weighted(nn.softmax(scores(q, k) + jnp.where(mask, 0.0, LOWEST)), v)


def upside_down(q, k, v):
    future = jnp.triu(jnp.ones((q.shape[1], k.shape[1]), bool), k=3)
    return weighted(nn.softmax(jnp.where(future, -jnp.inf, scores(q, k))), v)


def divided_behind(q, k, v):
    s = scores(q, k)
    powers = jnp.exp(s - s.max(-1, keepdims=True))
    total = powers.sum(-1)
    return weighted(powers, v) / total.transpose(0, 2, 1)[..., None]


def capped(q, k, v):
    return weighted(nn.softmax(30.0 * jnp.tanh(scores(q, k) / 4 / 30.0)), v)


def three_dimensions(q, k, v):
    q, k, v = (x.transpose(0, 2, 1, 3).reshape(-1, x.shape[1], x.shape[3]) for x in (q, k, v))
    return nn.softmax((q @ k.swapaxes(1, 2)) / 4) @ v


def of_one_product(q, k, v):
    together = jnp.tanh(jnp.concatenate([q, k, v], axis=2).reshape(*q.shape[:2], -1))
    q, k, v = (part.reshape(q.shape) for part in jnp.split(together, 3, axis=-1))
    return weighted(nn.softmax(scores(q, k) / 4), v)


SPELLINGS: dict[str, tuple[Callable, str]] = {
    "masked by a sum": (masked_by_sum, "causal(q·kᵀ)"),
    "the future is masked": (upside_down, "causal(q·kᵀ)"),
    "divided behind": (divided_behind, "q·kᵀ"),
    "soft cap": (capped, "softcap(0.25·q·kᵀ)"),
    "three dimensions": (three_dimensions, "0.25·q·kᵀ"),
    "of one product": (of_one_product, "0.25·q·kᵀ"),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str, dtype: str) -> None:
    program, text = SPELLINGS[name]
    both = run_both(program, *random_inputs(dtype, (2, 33, 3, 16), (2, 33, 3, 16), (2, 33, 3, 16)))
    assert_agree(both)
    (region,) = both.report.dispatched
    # In half precision the numbers are rounded.
    assert re.sub(r"0\.2\d+", "0.25", region.formula) == FORMULA.format(text)


@pytest.mark.parametrize("value", [-1e9, LOWEST, -np.inf])
def test_rows_that_are_masked_throughout_are_as_stock_has_them(value: float) -> None:
    mask = random_mask(2, 1, 33, 49).at[:, :, 5:9].set(False)
    arguments = random_inputs("float32", (2, 33, 3, 16), (2, 49, 3, 16), (2, 49, 3, 16))
    causal = jnp.arange(33)[:, None] + 16 >= jnp.arange(49)

    def program(q, k, v, mask):
        return weighted(nn.softmax(jnp.where(mask & causal, scores(q, k), value)), v)

    both = run_both(program, *arguments, mask)
    assert_agree(both)
    assert [region.formula for region in both.report.dispatched] == [FORMULA.format("causal(mask(q·kᵀ))")]


@pytest.mark.parametrize("size", [1e4, np.inf, np.nan])
def test_huge_scores_are_as_stock_has_them(size: float) -> None:
    q, k, v = random_inputs("float32", (2, 33, 3, 16), (2, 49, 3, 16), (2, 49, 3, 16))
    both = run_both(attend, q.at[0, 3, 1, 2].set(size), k, v)
    assert_agree(both, 1e-4)
    assert len(both.report.dispatched) == 1


# --- what stays -------------------------------------------------------------------------------------------------


def returns_weights(q, k, v):
    weights = nn.softmax(scores(q, k))
    return weighted(weights, v), weights


def over_queries(q, k, v):
    return weighted(nn.softmax(scores(q, k), axis=-2), v)


def of_other_scores(q, k, v):
    s = scores(q, k)
    return weighted(nn.softmax(jnp.sin(s)), v)


def with_another_maximum(q, k, v):
    s = scores(q, k)
    powers = jnp.exp(s - (2 * s).max(-1, keepdims=True))
    return weighted(powers / powers.sum(-1, keepdims=True), v)


def with_another_sum(q, k, v):
    powers = jnp.exp(scores(q, k) - scores(q, k).max(-1, keepdims=True))
    return weighted(powers / (powers * powers).sum(-1, keepdims=True), v)


STAYS: dict[str, tuple[Callable, str]] = {
    "weights are returned": (returns_weights, "value-needed"),
    "softmax over queries": (over_queries, "attention-softmax"),
    "an unknown step": (of_other_scores, "attention-step"),
    "another maximum": (with_another_maximum, "attention-softmax"),
    "another sum": (with_another_sum, "attention-softmax"),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_no_attention_stays_and_says_why(name: str) -> None:
    program, code = STAYS[name]
    both = run_both(program, *random_inputs("float32", (2, 33, 3, 16), (2, 49, 3, 16), (2, 49, 3, 16)))
    assert_agree(both)
    assert "own.attention" not in both.text
    assert code in {region.refusal.code for region in both.report.left if region.refusal is not None}


def test_a_gradient_keeps_its_forward_pass() -> None:
    arguments = random_inputs("float32", (2, 33, 3, 16), (2, 49, 3, 16), (2, 49, 3, 16))
    both = run_both(jax.grad(lambda *x: (attend(*x) ** 2).sum(), argnums=(0, 1, 2)), *arguments)
    assert_agree(both, 1e-4)


def test_refused_parts_come_back() -> None:
    """The softmax of an attention that is left alone is a pattern, its products are anchors."""
    both = run_both(returns_weights, *random_inputs("float32", (2, 33, 3, 16), (2, 49, 3, 16), (2, 49, 3, 16)))
    assert {region.entry for region in both.report.dispatched} >= {"dot", "softmax"}


# --- chosen, measured, frozen -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "keys", "is_taken"), [(4, 4, False), (128, 128, True), (1, 2048, True), (1, 128, False)]
)
def test_the_cost_model_takes_what_is_not_tiny(queries: int, keys: int, is_taken: bool) -> None:
    """One token of a decoder, too, although its products are small: XLA runs ten loops over its scores."""
    arguments = random_inputs("float32", (1, queries, 4, 32), (1, keys, 4, 32), (1, keys, 4, 32))
    both = run_both(attend, *arguments, policy="heuristic")
    assert_agree(both)
    assert ("own.attention" in both.text) is is_taken
    (region,) = [region for region in both.report.regions if region.entry == "attention"]
    assert region.dispatched is is_taken
    assert " " in region.reason


@pytest.mark.parametrize("is_faster", [True, False])
def test_it_is_measured_as_a_whole(is_faster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it loses its products and its softmax are anchors and a pattern again, and measured themselves."""

    def interleaved(runners: list[Any], **_: Any) -> list[Time]:
        gain = 0.5 if is_faster else -0.5
        return [Time(1.0, 0.0, 0.0), *(Time(1.0 - gain, gain, 0.0) for _ in runners[1:])]

    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    monkeypatch.setattr(comparison, "interleaved", interleaved)
    monkeypatch.setattr(whole_program_trial, "interleaved", interleaved)
    q, k, v = random_inputs("float32", *[(2, 96, 4, 32)] * 3)
    expected = jax.jit(lambda *a: attend(*a, is_causal=True))(q, k, v)
    with hlo_dispatch.enabled(policy="measure"):
        compiled = jax.jit(lambda *a: attend(*a, is_causal=True)).lower(q, k, v).compile()
        assert_close(np.asarray(compiled(q, k, v)), np.asarray(expected))
    measured = [entry.measured for entry in Store(tmp_path).entries() if entry.measured.kernel == "own.attention"]
    assert [entry.chosen for entry in measured] == ["whole" if is_faster else "stock"]
    assert ("own.attention" in compiled.as_text()) is is_faster
    report = hlo_dispatch.reports()[-1]
    (region,) = [region for region in report.regions if region.entry == "attention"]
    assert region.dispatched is is_faster
    assert any(region.opcode == "dot" for region in report.regions) is not is_faster


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_frozen_projections_keep_their_prepacked_weights(dtype: str) -> None:
    x, *weights = random_inputs(dtype, (2, 33, 64), *[(64, 4, 16)] * 3, (4, 16, 64))
    weights = [weight / 8 for weight in weights]

    def layer(weights, x):
        q, k, v = (jnp.einsum("btc,chd->bthd", x, weight) for weight in weights[:3])
        return jnp.einsum("bthd,hdc->btc", attend(q, k, v, is_causal=True), weights[3])

    expected = jax.jit(lambda *a: layer(*a))(weights, x)
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(layer, weights)
        assert_close(np.asarray(frozen(x)), np.asarray(expected))
    (program,) = frozen.report.programs
    assert program.dispatched is not None
    kernels = [region.kernel for region in program.dispatched.dispatched]
    assert sorted(kernels) == ["onednn.matmul"] * 4 + ["own.attention"]


# --- anything ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(16))
def test_random_arrangements(seed: int) -> None:
    """Dimensions in any order in memory and in the products, groups of heads, masks that repeat, scales anywhere."""
    random = np.random.default_rng(seed)
    sizes = {name: int(random.integers(2, 20)) for name in "ts"} | {"b": 2, "g": 3, "h": 2, "d": 8, "e": 16}

    def labels(of: str) -> str:
        return "".join(random.permutation(list(of)))

    q, k, v, out = labels("bghtd"), labels("bhsd"), labels("bhse"), labels("bghte")
    weights = labels("bghts")
    mask = "".join(name for name in "bghts" if random.random() < 0.6)
    bias = "".join(name for name in "bghts" if random.random() < 0.5)
    has_mask, has_bias, scales_queries = random.random(3) < 0.5
    axis = weights.index("s")

    def spread(array, names: str):
        return jnp.einsum(f"{names}->{''.join(n for n in weights if n in names)}", array).reshape(
            [sizes[name] if name in names else 1 for name in weights]
        )

    def program(query, key, value, kept, added):
        scores = jnp.einsum(f"{q},{k}->{weights}", query * 0.3 if scales_queries else query, key)
        scores = scores if scales_queries else scores * 0.3
        if has_bias:
            scores = scores + spread(added, bias)
        if has_mask:
            scores = jnp.where(spread(kept.astype(jnp.float32), mask) > 0, scores, -1e9)
        return jnp.einsum(f"{weights},{v}->{out}", nn.softmax(scores, axis=axis), value)

    arrays = [
        jnp.asarray(random.standard_normal([sizes[name] for name in names]), "float32") for names in (q, k, v, bias)
    ]
    kept = jnp.asarray(random.random([sizes[name] for name in mask]) < 0.8)
    both = run_both(program, *arrays[:3], kept, arrays[3])
    assert_agree(both)
    assert "own.attention" in both.text
