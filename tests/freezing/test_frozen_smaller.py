"""Weights stored as bf16: half the memory, the same function but for rounding, on any processor."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quantized import assert_near

import hlo_dispatch
from hlo_dispatch import FreezeError
from hlo_dispatch.freezing.reduced_precision import WEIGHT_FORMATS

RANDOM = np.random.default_rng(0)
# bf16 keeps 8 bits; sums stay f32.
ROUNDED = 1e-2
SUMMED = 1e-5


def array(*shape: int) -> Any:
    return jnp.asarray(RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]) or 1), "float32")


def rounded(value: Any) -> Any:
    return value.astype("bfloat16").astype("float32") if value.ndim > 1 else value


@pytest.fixture
def widens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that does not multiply bf16."""
    monkeypatch.setitem(WEIGHT_FORMATS, "bf16", replace(WEIGHT_FORMATS["bf16"], is_multiplied=lambda machine: False))


@pytest.mark.parametrize("policy", ["never", "always"])
@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 17, 5), (16, 64, 33), (5, 129, 1)], ids=str)
def test_products(shape: tuple[int, int, int], policy: str) -> None:
    rows, inner, columns = shape
    w, b, x = array(inner, columns), array(columns), array(rows, inner)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(lambda w, b, x: jax.nn.relu(x @ w + b), w, b, weights="bf16")
        got = fast(x)
    assert got.dtype == np.float32
    exact = np.maximum(np.asarray(x, "float64") @ np.asarray(w, "float64") + np.asarray(b, "float64"), 0)
    assert_near(got, exact, ROUNDED)


@pytest.mark.parametrize("policy", ["never", "always"])
def test_convolutions_and_what_scales_them(policy: str) -> None:
    w, scale, shift, x = array(3, 3, 32, 48), array(48) + 2, array(48), array(2, 9, 9, 32)

    def network(w: Any, scale: Any, shift: Any, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.tanh(y * scale + shift)

    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(network, w, scale, shift, weights="bf16")
        got = fast(x)
    assert_near(got, network(w, scale, shift, x), ROUNDED)
    assert fast.nbytes < 0.7 * sum(a.nbytes for a in (w, scale, shift))


def everywhere(p: dict[str, Any], x: Any, rows: Any) -> Any:
    """Weights in every place where they can be multiplied."""
    x = x + p["table"][rows]
    x, _ = jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, p["stacked"])
    x = jax.lax.cond(x.sum() > 0, lambda x: x @ p["either"], lambda x: x @ p["either"].T, x)
    x = jax.lax.fori_loop(0, 2, lambda _, x: jnp.tanh(x @ p["repeated"]), x)
    x = jax.lax.while_loop(lambda x: (x @ p["asked"]).sum() > 1e9, lambda x: x, x)
    x = jax.checkpoint(lambda x: jax.jit(lambda x: x @ p["called"])(x))(x)
    x = jax.nn.silu(x @ jnp.concatenate([p["left"], p["right"]], 1)[:, :64].reshape(64, 2, 32).reshape(64, 64))
    return x @ p["table"].T + p["added"]


def weights() -> dict[str, Any]:
    square = ("either", "repeated", "asked", "called")
    other = {"table": (100, 64), "stacked": (3, 64, 64), "left": (64, 30), "right": (64, 40), "added": (8, 100)}
    return {name: array(*shape) for name, shape in {**dict.fromkeys(square, (64, 64)), **other}.items()}


X, ROWS = array(8, 64), jnp.arange(8) * 12


def test_wherever_they_are_multiplied() -> None:
    p = weights()
    fast = hlo_dispatch.freeze(everywhere, p, weights="bf16")
    assert_near(fast(X, ROWS), everywhere(p, X, ROWS), ROWS.size * ROUNDED)
    held = 2 * sum(a.size for name, a in p.items() if name != "added")
    assert fast.nbytes <= held + p["added"].nbytes
    assert fast.report.programs[0].narrowed == len(p) - 1, "what is only added stays as it is"


@pytest.mark.parametrize("policy", ["never", "always", "heuristic"])
def test_a_processor_that_does_not_multiply_bf16_widens_them(policy: str, widens: None) -> None:
    p = weights()
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(everywhere, p, weights="bf16")
        got = fast(X, ROWS)
    exact = everywhere({name: a if name == "added" else rounded(a) for name, a in p.items()}, X, ROWS)
    assert_near(got, exact, SUMMED)
    assert fast.nbytes <= 0.51 * sum(a.nbytes for a in p.values()), "nothing is held wide"


def test_who_asks_for_more_precision_gets_it() -> None:
    w, x = array(64, 64), array(4, 64)
    fast = hlo_dispatch.freeze(lambda w, x: jnp.matmul(x, w, precision="highest"), w, weights="bf16")
    assert_near(fast(x), np.asarray(x, "float64") @ np.asarray(rounded(w), "float64"), SUMMED)
    assert fast.nbytes == w.nbytes // 2


def test_what_is_no_weight_stays_as_it_is() -> None:
    p = {"half": jnp.ones((8, 8), "float16"), "int": jnp.ones((8, 8), "int32"), "row": array(8), "made": array(8, 8)}

    def network(p: dict[str, Any], x: Any) -> Any:
        return x @ p["half"].astype("float32") + x @ p["int"].astype("float32") + p["row"] @ (p["made"] * 2).T

    fast = hlo_dispatch.freeze(network, p, weights="bf16")
    assert_near(fast(X[:, :8]), network(p, X[:, :8]), SUMMED)
    assert fast.report.programs[0].narrowed == 0


def test_closed_over_and_given_by_numpy() -> None:
    w, v = array(64, 64), np.asarray(array(64, 64), "float64")
    fast = hlo_dispatch.freeze(lambda v, x: jax.jit(lambda x: x @ w)(x) @ v, v, weights="bf16")
    assert_near(fast(X), np.asarray(X) @ np.asarray(w) @ v, 2 * ROUNDED)
    assert fast.report.programs[0].narrowed == 2


def test_weights_that_are_tied_are_held_once() -> None:
    w = array(64, 64)
    fast = hlo_dispatch.freeze(lambda p, x: x @ p[0] @ p[1], [w, w], weights="bf16")
    fast(X)
    fast(X[:2])
    assert fast.nbytes == w.nbytes // 2


def test_update_and_transformations() -> None:
    def network(p: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["w"]) + p["b"]

    p = {"w": array(64, 64), "b": array(64)}
    fast = hlo_dispatch.freeze(network, p, weights="bf16")
    fast(X)
    new = {"w": 2 * p["w"], "b": p["b"]}
    fast.update(new)
    assert_near(fast(X), network(new, X), ROUNDED)
    grad, plain = (jax.grad(lambda x, f=f: f(x).sum())(X) for f in (fast, lambda x: network(new, x)))
    np.testing.assert_allclose(grad, plain, rtol=1e-6)
    with pytest.raises(FreezeError, match=r"was float32\[64,64\] and would become bfloat16"):
        fast.update({"w": new["w"].astype("bfloat16"), "b": p["b"]})


def test_how_far_results_move_is_told() -> None:
    w = array(64, 64)
    fast = hlo_dispatch.freeze(lambda w, x: (x @ w, jnp.argmax(x @ w)), w, weights="bf16")
    fast(X)
    assert "1 weights are narrowed" in str(fast.report)
    assert "largest_change" in str(fast.report)
    change = fast.largest_change(X)
    wanted, got = X @ w, fast(X)[0]
    assert change == pytest.approx(np.abs(got - wanted).max() / np.abs(wanted).max(), rel=1e-3)
    assert 0 < change < ROUNDED
    assert fast.report.programs[0].change == change
    assert f"at most by {change:.2g}" in str(fast.report)
    fast.update(2 * w)
    assert fast.report.programs[0].change is None, "it was asked of other weights"
    del w
    gc.collect()
    with pytest.raises(FreezeError, match="are gone, and comparing"):
        fast.largest_change(X)


def test_as_they_are_nothing_moves() -> None:
    w = array(64, 64)
    fast = hlo_dispatch.freeze(lambda w, x: x @ w, w)
    assert fast.largest_change(X) < SUMMED
    assert "smaller" not in str(fast.report)


@pytest.mark.parametrize("wrong", ["int7", "float32", 16])
def test_other_forms_are_refused(wrong: Any) -> None:
    with pytest.raises(FreezeError, match=r"weights=.*no format of weights: None .*'bf16'"):
        hlo_dispatch.freeze(lambda w, x: x @ w, X, weights=wrong)


@pytest.mark.parametrize("weights", ["bf16", "int8", "int4"])
def test_loops_of_a_batch_end_one_by_one(weights: str) -> None:
    """vmap makes one loop of them, which goes on while any does."""
    w, limits = array(64, 64), jnp.arange(1.0, 6.0)
    x = array(5, 2, 64)

    def turns(w: Any, x: Any, limit: Any) -> Any:
        go_on = lambda state: (state[0] < limit) & jnp.isfinite((state[1] @ w).sum())  # noqa: E731
        return jax.lax.while_loop(go_on, lambda state: (state[0] + 1, jnp.tanh(state[1] @ w)), (0.0, x))

    batch = hlo_dispatch.freeze(jax.vmap(turns, in_axes=(None, 0, 0)), w, weights=weights)
    one = hlo_dispatch.freeze(turns, w, weights=weights)
    counts, results = batch(x, limits)
    np.testing.assert_array_equal(counts, limits)
    for number, result in enumerate(results):
        assert_near(result, np.asarray(one(x[number], limits[number])[1], "float64"), ROUNDED)
