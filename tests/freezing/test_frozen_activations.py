"""`freeze(..., activations="int8")`: rows that integer weights multiply are rounded to the same eight bits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quantized import EVERYWHERE, assert_near, dequantized, everywhere, wide

import hlo_dispatch
from dynamic_quantization import group_of, in_eight_bits
from hlo_dispatch import FreezeError
from hlo_dispatch.freezing.weight_only_quantization import MAX_EXACT_ROWS

RANDOM = np.random.default_rng(2)
LARGEST = {"int8": 127, "int4": 7}
SUMMED = 1e-5  # the same numbers, summed in another order
NEAR = 4e-2  # against what is not rounded, or after roundings of different numbers
FORMS = ("int8", "int4")
POLICIES = ("never", "always")


def array(*shape: int) -> Any:
    return jnp.asarray(RANDOM.standard_normal(shape) / np.sqrt(shape[-2] if len(shape) > 1 else 1), "float32")


def weights_of(form: str, *shape: int, along: tuple[int, ...] = (0,)) -> Any:
    """Weights that are stored exactly: whole numbers of a power of two, the first of each group the largest."""
    numbers = RANDOM.integers(-LARGEST[form], LARGEST[form] + 1, shape).astype(np.float32)
    np.moveaxis(numbers, along, range(len(along)))[(*(0 for _ in along[1:]), slice(None, None, 64))] = LARGEST[form]
    return jnp.asarray(numbers / (8 * 2 ** LARGEST[form].bit_length()))


def frozen(function: Any, *args: Any, weights: str = "int8", **options: Any) -> Any:
    return hlo_dispatch.freeze(function, *args, weights=weights, activations="int8", **options)


def multiply(w: Any, x: Any) -> Any:
    return x @ w


def formulas(fast: Any) -> list[str]:
    """Of the calls of the first program."""
    report = fast.report.programs[0].dispatched
    return [region.formula for region in report.regions if region.kernel == "own.narrow_product"]


@pytest.mark.parametrize("policy", [*POLICIES, "heuristic"])
@pytest.mark.parametrize("weights", FORMS)
@pytest.mark.parametrize("shape", [(9, 1, 2), (20, 17, 6), (33, 64, 70), (13, 300, 41), (100, 640, 90)], ids=str)
def test_products(shape: tuple[int, int, int], weights: str, policy: str) -> None:
    rows, inner, columns = shape
    w, b, x = weights_of(weights, inner, columns), array(columns), array(rows, inner)
    with hlo_dispatch.enabled(policy=policy):
        fast = frozen(lambda w, b, x: jax.nn.relu(x @ w + b), w, b, weights=weights)
        got = fast(x)
    exact = in_eight_bits(x, group_of(inner)) @ wide(w)
    assert got.dtype == np.float32
    assert_near(got, np.maximum(exact + wide(b), 0), SUMMED)
    assert "activations of 1 products are rounded to eight bits" in str(fast.report)


@pytest.mark.parametrize("weights", FORMS)
@pytest.mark.parametrize("by_column", [False, True])
def test_one_call_rounds_and_multiplies(weights: str, by_column: bool) -> None:
    """Also what something else computes first, for several products."""
    w, v, norm, x = array(128, 256), array(128, 192), array(128), array(3, 16, 128)
    given = (w.T, v.T) if by_column else (w, v)

    def network(w: Any, v: Any, norm: Any, x: Any) -> Any:
        h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * norm
        w, v = (w.T, v.T) if by_column else (w, v)
        return jax.nn.silu(h @ w)[..., :192] * (h @ v)

    with hlo_dispatch.enabled(policy="always"):
        fast = frozen(network, *given, norm, weights=weights)
        got = fast(x)
    assert [formula.count("round(x) @ ") for formula in formulas(fast)] == [1, 1]
    assert_near(got, network(*given, norm, x), NEAR if weights == "int8" else 6 * NEAR)


@pytest.mark.parametrize("policy", POLICIES)
def test_sides_and_several_dimensions(policy: str) -> None:
    w, v = weights_of("int8", 40, 128, along=(1,)), weights_of("int8", 24, 64, along=(1,))
    heads = weights_of("int8", 2, 32, 30, along=(0, 1))
    x, y, z = array(20, 128), array(64, 11), array(3, 5, 2, 32)

    def network(w: Any, v: Any, heads: Any, x: Any, y: Any, z: Any) -> Any:
        return x @ w.T, v @ y, jnp.einsum("bthd,hdo->bto", z, heads)

    with hlo_dispatch.enabled(policy=policy):
        got = frozen(network, w, v, heads)(x, y, z)
    flat = in_eight_bits(np.asarray(z).reshape(15, 64), 64)
    assert_near(got[0], in_eight_bits(x, 64) @ wide(w).T, SUMMED)
    assert_near(got[1], wide(v) @ in_eight_bits(y.T, 64).T, SUMMED)
    assert_near(got[2], (flat @ wide(heads).reshape(64, 30)).reshape(3, 5, 30), SUMMED)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype: str, policy: str) -> None:
    w, x = weights_of("int8", 128, 70), array(20, 128).astype(dtype)
    with hlo_dispatch.enabled(policy=policy):
        got = frozen(multiply, w.astype(dtype))(x)
    exact = in_eight_bits(x, 64) @ wide(w)
    assert got.dtype == x.dtype
    assert_near(got, exact, 0.6 * float(jnp.finfo(dtype).eps) + SUMMED)


@pytest.mark.parametrize("policy", POLICIES)
def test_few_rows_and_higher_precision_are_not_rounded(policy: str) -> None:
    w, x = weights_of("int8", 128, 70), array(33, 128)
    with hlo_dispatch.enabled(policy=policy):
        fast = frozen(multiply, w)
        few = fast(x[:MAX_EXACT_ROWS])
        precise = frozen(lambda w, x: jnp.matmul(x, w, precision="highest"), w)(x)
    assert_near(few, wide(x[:MAX_EXACT_ROWS]) @ wide(w), SUMMED)
    assert_near(precise, wide(x) @ wide(w), SUMMED)
    assert "eight bits in each call" not in str(fast.report)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weights", FORMS)
def test_zeros_and_what_is_no_number(weights: str, policy: str) -> None:
    w, x = weights_of(weights, 128, 40), np.array(array(16, 128))
    x[1], x[2, 64:] = 0, 0
    x[3, 5], x[4, 6], x[5, 70] = np.nan, np.inf, -np.inf
    with hlo_dispatch.enabled(policy=policy):
        got = np.asarray(frozen(multiply, w, weights=weights)(x))
    assert (got[1] == 0).all()
    assert not np.isfinite(got[3:6]).any()
    others = [*range(3), *range(6, 16)]
    assert_near(got[others], in_eight_bits(x[others], 64) @ wide(w), SUMMED)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weights", FORMS)
def test_wherever_they_are_multiplied(weights: str, policy: str, tmp_path: Path) -> None:
    p = {name: array(*(3,) * (name == "stacked"), 128, 128) for name in EVERYWHERE}
    x = array(12, 128)
    q = {name: jnp.asarray(dequantized(weights, w, EVERYWHERE[name]), "float32") for name, w in p.items()}
    with hlo_dispatch.enabled(policy=policy):
        fast = frozen(everywhere, p, weights=weights, donate=True)
        got = fast(x)
        assert_near(got, everywhere(q, x), NEAR)
        fast.save(tmp_path / "model")
        np.testing.assert_array_equal(hlo_dispatch.load(tmp_path / "model")(x), got)
    assert "activations of 7 products are rounded" in str(fast.report), "one of a branch each"


def test_derivatives_are_of_the_function_as_it_was() -> None:
    w, x = array(64, 64), array(12, 64)
    fast = frozen(multiply, w, keep=True)
    fast(x)
    np.testing.assert_allclose(jax.grad(lambda x: fast(x).sum())(x), jax.grad(lambda x: (x @ w).sum())(x), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(fast)(x[None])[0], x @ w, rtol=1e-4, atol=1e-5)


def test_integers_that_a_user_brings_are_multiplied_as_they_were() -> None:
    """With a zero point, in groups: their activations stay as they are."""
    q, s = RANDOM.integers(0, 255, (128, 48), np.uint8).astype(np.int8), np.abs(array(2, 48))
    w, x = weights_of("int8", 48, 32), array(14, 128)

    def network(w: Any, q: Any, s: Any, x: Any) -> Any:
        shifted = (q.astype(jnp.float32) - 3).reshape(2, 64, 48) * s[:, None]
        return x @ shifted.reshape(128, 48), (x[:, :48] @ w)

    with hlo_dispatch.enabled(policy="always"):
        brought, ours = frozen(network, w, q, s)(x)
    assert_near(brought, wide(x) @ ((wide(q) - 3).reshape(2, 64, 48) * wide(s)[:, None]).reshape(128, 48), SUMMED)
    assert_near(ours, in_eight_bits(x[:, :48], 48) @ wide(w), SUMMED)


def test_several_threads() -> None:
    w = array(256, 512)
    rows = [array(20 + n, 256) for n in range(4)]
    with hlo_dispatch.enabled(policy="always"):
        fast = frozen(multiply, w, signatures=[(x,) for x in rows])
        alone = [np.asarray(fast(x)) for x in rows]
        with ThreadPoolExecutor(4) as pool:
            for number, results in enumerate(pool.map(lambda x: [np.asarray(fast(x)) for _ in range(20)], rows)):
                assert all((result == alone[number]).all() for result in results)


def test_how_far_results_move_is_told() -> None:
    w, x = array(128, 64), array(32, 128)
    fast, only_weights = frozen(multiply, w), hlo_dispatch.freeze(multiply, w, weights="int8")
    got = fast(x)
    assert fast.largest_change(x) == pytest.approx(np.abs(got - x @ w).max() / np.abs(x @ w).max(), rel=1e-3)
    assert 0 < fast.largest_change(x) < NEAR
    assert np.abs(got - only_weights(x)).max() > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"weights": "int8", "activations": "int4"}, "activations='int4' is no format of activations: None"),
        ({"activations": "int8"}, "activations='int8' rounds what is multiplied with integer weights, of which"),
        ({"weights": "bf16", "activations": "int8"}, 'weights=\'bf16\' makes none: weights="int8" or weights="int4"'),
        ({"weights": "int2", "activations": "int8"}, "weights='int2' is no format of weights"),
    ],
    ids=str,
)
def test_refusals(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(FreezeError) as caught:
        hlo_dispatch.freeze(multiply, array(8, 8), **options)  # pyright: ignore[reportArgumentType]
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
