"""Weight-only quantization to eight or four bits: less memory, the same function of the rounded weights."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quantized import EVERYWHERE, assert_near, everywhere, in_four_bits, rounded, wide

import hlo_dispatch
from hlo_dispatch.freezing.weight_only_quantization import MAX_EXACT_ROWS
from hlo_dispatch.process.machine import this_machine

RANDOM = np.random.default_rng(1)
SUMMED = 1e-5  # the same weights, summed in another order
GROUPS_IN_BF16 = 1e-2  # XLA rounds weights with their scales of groups to bf16, where many rows are multiplied so
ROUNDED = 3e-2  # against the weights as they were


def array(*shape: int) -> Any:
    return jnp.asarray(RANDOM.standard_normal(shape) / np.sqrt(shape[-2] if len(shape) > 1 else 1), "float32")


def is_rounded(x: Any) -> bool:
    """Many rows are, to bf16, where the processor multiplies that."""
    return len(x) > MAX_EXACT_ROWS and this_machine().has_bf16_arithmetic


def as_multiplied(x: Any) -> np.ndarray:
    """The rows of a product with integer weights: many are rounded to bf16 where the processor multiplies that."""
    return wide(x.astype("bfloat16") if is_rounded(x) else x)


def narrowed(fast: Any) -> int:
    return fast.report.programs[0].narrowed


@pytest.mark.parametrize("policy", ["never", "always", "heuristic"])
@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 17, 5), (1, 300, 513), (33, 64, 70), (5, 129, 1), (100, 80, 90)])
def test_products(shape: tuple[int, int, int], policy: str) -> None:
    rows, inner, columns = shape
    w, b, x = array(inner, columns), array(columns), array(rows, inner)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(lambda w, b, x: jax.nn.relu(x @ w + b), w, b, weights="int8")
        got = fast(x)
    assert got.dtype == np.float32
    assert_near(got, np.maximum(as_multiplied(x) @ rounded(w, 0) + wide(b), 0), SUMMED)
    assert fast.nbytes <= w.size + 3 * 4 * columns, "nothing is held wide, whoever multiplies"
    assert narrowed(fast) == 1


@pytest.mark.parametrize("policy", ["never", "always"])
def test_orders_and_sides(policy: str) -> None:
    """(out, in) weights on either side, several dimensions that are summed up, and a batch of products."""
    w, v, heads, each = array(40, 30), array(24, 40), array(24, 3, 7), array(4, 7, 9)
    x = array(2, 30)

    def network(w: Any, v: Any, heads: Any, each: Any, x: Any) -> Any:
        y = x @ w.T  # 2, 40
        y = (v @ y.T).T  # 2, 24
        y = jnp.einsum("bd,dhk->bhk", y, heads)  # 2, 3, 7
        return jnp.einsum("ebk,eko->beo", jnp.stack([y[:, 0]] * 4), each), jnp.einsum("bhk,dhk->bd", y, heads + 0)

    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(network, w, v, heads, each, weights="int8")
        got, other = fast(x)
    q = rounded(w, 1), rounded(v, 1), wide(heads), rounded(each, 1)
    y = np.einsum("bd,dhk->bhk", wide(x) @ q[0].T @ q[1].T, q[2])
    assert_near(got, np.einsum("bk,eko->beo", y[:, 0], q[3]), SUMMED)
    assert_near(other, np.einsum("bhk,dhk->bd", y, q[2]), SUMMED)
    assert narrowed(fast) == 3, "what something else reads, too, stays as it is"


@pytest.mark.parametrize("policy", ["never", "always", "heuristic"])
def test_wherever_they_are_multiplied(policy: str) -> None:
    p = {name: array(*(3,) * (name == "stacked"), 64, 64) for name in EVERYWHERE}
    x = array(8, 64)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(everywhere, p, weights="int8")
        got = fast(x)
    q = {name: jnp.asarray(rounded(w, EVERYWHERE[name]), "float32") for name, w in p.items()}
    assert_near(got, everywhere(q, x), 10 * SUMMED)
    assert narrowed(fast) == len(p)
    assert fast.nbytes <= 1.1 * sum(w.size for w in p.values())


def test_what_stays_as_it_is() -> None:
    """Convolutions, weights that are summed up in two ways, or used otherwise, too."""
    p = {
        "kernel": array(3, 3, 4, 8), "tied": array(32, 32), "made": array(32, 32), "returned": array(32, 32),
        "row": array(32), "left": array(32, 16), "right": array(32, 16),
    }  # fmt: skip

    def network(p: dict[str, Any], x: Any, image: Any) -> Any:
        y = jax.lax.conv_general_dilated(image, p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = x @ p["tied"] @ p["tied"].T @ (p["made"] * 2)
        x = x @ p["returned"] @ jnp.concatenate([p["left"], p["right"]], 1)
        return x * p["row"], y, p["returned"]

    given = array(4, 32), array(1, 5, 5, 4)
    fast = hlo_dispatch.freeze(network, p, weights="int8", keep=True)
    for got, wanted in zip(fast(*given), network(p, *given), strict=True):
        assert_near(got, wanted, SUMMED)
    assert narrowed(fast) == 0
    assert fast.largest_change(*given) < SUMMED


def test_what_is_not_narrowed_is_reported() -> None:
    p = {"w": array(32, 32), "half": array(32, 32).astype("bfloat16"), "tied": array(32, 32), "b": array(32)}
    p |= {"unused": array(4, 4), "double": np.ones((32, 32))}

    def network(p: dict[str, Any], x: Any) -> Any:
        x = x @ p["w"] @ (p["half"] + 1).astype("float32") @ p["tied"] @ p["tied"].T + p["b"]
        return x, p["double"] * 2

    with jax.enable_x64(True):
        fast = hlo_dispatch.freeze(network, p, weights="int8")
        fast(array(4, 32))
    assert fast.report.programs[0].not_narrowed == {
        "[0]['double']": "weights of float64 are not narrowed",
        "[0]['half']": "something else than a lookup or a product of two arrays reads it",
        "[0]['tied']": "products sum it up along different dimensions",
        "[0]['unused']": "it is neither multiplied nor looked up in",
    }
    assert "not narrowed, since products sum it up along different dimensions: [0]['tied']" in str(fast.report)


@pytest.mark.parametrize("form", ["bf16", "int8", "int4"])
def test_nothing_narrowed_is_a_warning(form: str, caplog: pytest.LogCaptureFixture) -> None:
    fast = hlo_dispatch.freeze(lambda w, x: x + w, array(8, 8), weights=form)
    fast(array(8, 8))
    fast(array(1, 8))
    (said,) = caplog.records
    assert f'weights="{form}") narrowed nothing' in said.getMessage()
    caplog.clear()
    hlo_dispatch.freeze(lambda w, v, x: x @ w + v, array(8, 8), array(8, 8), weights=form)(array(8, 8))
    if form == "bf16":
        hlo_dispatch.freeze(lambda w, x: x @ w, array(8, 8).astype("bfloat16"), weights=form)(array(8, 8))
    assert not caplog.records, "something is narrowed, or all is that small already"


@pytest.mark.parametrize("policy", ["never", "always"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_of_half_precision(dtype: str, policy: str) -> None:
    """Operands are widened exactly and summed in f32: the result is rounded once."""
    # 127 times a power of two is the largest of each column: nothing is lost when they are made integers.
    w = np.clip(np.round(RANDOM.standard_normal((96, 64)) * 40), -127, 127)
    w[5] = 127
    w, x = jnp.asarray(w / 1024, dtype), array(3, 96).astype(dtype)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(lambda w, x: (x @ w, x @ w[:, :3]), w, weights="int8")
        got, part = fast(x)
    assert got.dtype == part.dtype == x.dtype
    exact = wide(x) @ wide(w)
    for value, columns in ((got, exact), (part, exact[:, :3])):
        np.testing.assert_allclose(wide(value), columns, rtol=0.6 * float(jnp.finfo(dtype).eps), atol=1e-5)
    assert narrowed(fast) == 1
    assert fast.nbytes <= 1.3 * w.size, "and the part of it in f32"


@pytest.mark.parametrize("policy", ["never", "always"])
def test_zeros_and_what_is_no_number(policy: str) -> None:
    w = np.array(array(20, 40))
    w[:, 3] = 0
    w[5, 7], w[6, 8] = np.nan, np.inf
    x = array(2, 20)
    with hlo_dispatch.enabled(policy=policy):
        got = np.asarray(hlo_dispatch.freeze(lambda w, x: x @ w, w, weights="int8")(x))
    assert (got[:, 3] == 0).all()
    assert not np.isfinite(got[:, [7, 8]]).any()
    others = np.delete(np.arange(40), [7, 8])
    assert_near(got[:, others], wide(x) @ rounded(w[:, others], 0), SUMMED)


def test_who_asks_for_more_precision_gets_it() -> None:
    w, x = array(64, 64), array(4, 64)
    fast = hlo_dispatch.freeze(lambda w, x: jnp.matmul(x, w, precision="highest"), w, weights="int8")
    assert_near(fast(x), wide(x) @ rounded(w, 0), SUMMED)


def test_closed_over_given_by_numpy_and_updated() -> None:
    w, v, x = array(64, 64), np.asarray(array(64, 64), "float64"), array(3, 64)
    fast = hlo_dispatch.freeze(lambda v, x: jax.jit(lambda x: x @ w)(x) @ v, v, weights="int8", keep=True)
    assert_near(fast(x), wide(x) @ rounded(w, 0) @ rounded(v.astype("float32"), 0), 2 * SUMMED)
    fast.update(2 * v)
    assert_near(fast(x), wide(x) @ rounded(w, 0) @ rounded(2 * v.astype("float32"), 0), 2 * SUMMED)
    assert narrowed(fast) == 2
    plain = jax.grad(lambda x: (x @ w @ (2 * v).astype("float32")).sum())(x)
    np.testing.assert_allclose(jax.grad(lambda x: fast(x).sum())(x), plain, rtol=1e-5)


@pytest.mark.parametrize("policy", ["never", "always"])
def test_saved_and_donated(policy: str, tmp_path: Path) -> None:
    w, x = array(96, 70), array(2, 96)
    exact = wide(x) @ rounded(w, 0)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(lambda w, x: x @ w, w, weights="int8", donate=True)
        assert_near(fast(x), exact, SUMMED)
        assert w.is_deleted()
        fast.save(tmp_path / "model")
        with zipfile.ZipFile(tmp_path / "model") as archive:
            arrays = [member.file_size for member in archive.infolist() if member.filename.startswith("array-")]
        assert sum(arrays) < 2 * 96 * 70
        assert_near(hlo_dispatch.load(tmp_path / "model")(x), exact, SUMMED)


def test_how_far_results_move_is_told() -> None:
    w, x = array(64, 64), array(8, 64)
    fast = hlo_dispatch.freeze(lambda w, x: x @ w, w, weights="int8")
    got = fast(x)
    change = fast.largest_change(x)
    assert change == pytest.approx(np.abs(got - x @ w).max() / np.abs(x @ w).max(), rel=1e-3)
    assert 0 < change < ROUNDED
    assert "1 weights are narrowed" in str(fast.report)
    assert f"at most by {change:.2g}" in str(fast.report)


@pytest.mark.parametrize("policy", ["never", "always", "heuristic"])
@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 17, 5), (1, 320, 514), (2, 64, 71), (33, 128, 70), (5, 129, 1)])
def test_four_bits(shape: tuple[int, int, int], policy: str) -> None:
    """In groups where what is summed up is a multiple of one, else with one scale for each output."""
    rows, inner, columns = shape
    w, v, b, x = array(inner, columns), array(columns, inner), array(columns), array(rows, inner)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(lambda w, v, b, x: (jax.nn.relu(x @ w + b), v @ x.T), w, v, b, weights="int4")
        got, other = fast(x)
    tolerance = GROUPS_IN_BF16 if is_rounded(x) else SUMMED
    assert_near(got, np.maximum(as_multiplied(x) @ in_four_bits(w) + wide(b), 0), tolerance)
    assert_near(other, in_four_bits(v, 1) @ as_multiplied(x).T, tolerance)
    assert narrowed(fast) == 2


@pytest.mark.parametrize("policy", ["never", "always"])
def test_four_bits_everywhere_saved_and_donated(policy: str, tmp_path: Path) -> None:
    names = ("either", "repeated", "asked", "called", "mapped")
    p = {"stacked": array(3, 128, 128), **{name: array(128, 128) for name in names}}
    x = array(8, 128)
    along = {name: 1 if name in ("stacked", "mapped") else 0 for name in p}
    q = {name: jnp.asarray(in_four_bits(w, along[name]), "float32") for name, w in p.items()}
    wanted = everywhere(q, x)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(everywhere, p, weights="int4", donate=True)
        assert_near(fast(x), wanted, 10 * SUMMED)
        fast.save(tmp_path / "model")
        assert_near(hlo_dispatch.load(tmp_path / "model")(x), wanted, 10 * SUMMED)
    assert narrowed(fast) == len(p)
    packed = jnp.zeros(2, "int4").on_device_size_in_bytes() == 1  # older releases of jaxlib say two
    assert fast.nbytes <= (0.6 if packed else 1.1) * sum(w.size for w in p.values())
