"""Narrow tables: rows that are looked up are widened afterwards, and a tied head multiplies the same integers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quantized import assert_near, dequantized, in_four_bits, rounded, wide

import hlo_dispatch
from hlo_dispatch.bench.generate.decoder import FORMS, empty_cache, parameters, step
from hlo_dispatch.bench.generate.weights import SIZES

RANDOM = np.random.default_rng(3)
SUMMED = 1e-5  # the same weights, summed in another order
HALF = 2e-2  # results in bf16
DECODER = replace(SIZES["tiny"], vocabulary=1000)
FORMATS = ("bf16", "int8", "int4")
PACKED = jnp.zeros(2, "int4").on_device_size_in_bytes() == 1  # older releases of jaxlib say two


def array(*shape: int, dtype: str = "float32") -> Any:
    return jnp.asarray(RANDOM.standard_normal(shape) / np.sqrt(shape[-1]), dtype)


def bytes_of(form: str, size: int) -> float:
    """Of weights without their scales."""
    return size * {"bf16": 2, "int8": 1, "int4": 0.5 if PACKED else 1}[form]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("policy", ["never", "always"])
@pytest.mark.parametrize(("rows", "columns"), [(50, 64), (7, 17), (5, 1), (1, 8), (40, 192), (9, 66)])
def test_rows_are_looked_up(rows: int, columns: int, policy: str, form: str) -> None:
    table = array(rows, columns)
    indices = jnp.asarray(RANDOM.integers(0, rows, (2, 3)))
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(lambda table, i: table[i] * 2, table, weights=form)
        got = fast(indices)
    exact = dequantized(form, table, 1)
    assert got.dtype == np.float32
    assert_near(got, 2 * exact[np.asarray(indices)], 1e-6)
    assert fast.report.programs[0].narrowed == 1
    scales = 4 * rows * max(1, columns // 64)
    assert fast.nbytes <= bytes_of(form, table.size) + scales * (form != "bf16") + 1


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_indices_out_of_bounds(mode: Any, form: str) -> None:
    table = array(5, 64)
    indices = jnp.asarray([0, 7, 4, -1, -9])
    options: list[dict[str, Any]] = [{}, {"fill_value": 0}, {"fill_value": -2.5}] if mode == "fill" else [{}]
    for options_of_mode in options:

        def find(table: Any, i: Any, options: dict[str, Any] = options_of_mode) -> Any:
            return jnp.take(table, i, axis=0, mode=mode, **options)

        got = hlo_dispatch.freeze(find, table, weights=form)(indices)
        exact = find(jnp.asarray(dequantized(form, table, 1), "float32"), indices)
        np.testing.assert_allclose(got, exact, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("policy", ["never", "always", "heuristic"])
def test_a_tied_head_reads_the_same_integers(policy: str, form: str, dtype: str) -> None:
    table = array(300, 128, dtype=dtype)

    def network(table: Any, tokens: Any) -> Any:
        return jnp.tanh(table[tokens]) @ table.T

    tokens = jnp.asarray([[3, 299, 0]])
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(network, table, weights=form)
        got = fast(tokens)
    exact = dequantized(form, table, 1)
    tolerance = SUMMED if dtype == "float32" and form != "bf16" else HALF
    assert_near(got, np.tanh(exact[np.asarray(tokens)]) @ exact.T, tolerance)
    assert got.dtype == dtype
    if form != "bf16":
        assert fast.nbytes <= bytes_of(form, table.size) + 4 * 300 * (4 if form == "int4" else 1)
        assert fast.report.programs[0].narrowed == 1


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("policy", ["never", "always"])
def test_parameters_in_f32_that_are_computed_with_in_bf16(policy: str, form: str) -> None:
    """As Flax and KerasHub do it: each is converted before it is looked up in or multiplied."""
    p = {"table": array(40, 64), "w": array(64, 128), "out": array(2, 64, 32), "stacked": array(3, 32, 32)}

    def network(p: dict[str, Any], tokens: Any) -> Any:
        p = {name: leaf.astype("bfloat16") for name, leaf in p.items() if name != "stacked"} | {"stacked": p["stacked"]}
        x = (p["table"][tokens] @ p["w"]).reshape(-1, 2, 64)
        x = jnp.einsum("bhd,hde->be", x, p["out"])
        return jax.lax.scan(lambda x, w: (x @ w.astype("bfloat16"), None), x, p["stacked"])[0]

    tokens = jnp.arange(4) * 9
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(network, p, weights=form)
        got = fast(tokens)
    along = {"table": 1, "w": 0, "out": (0, 1), "stacked": 1}
    exact = {name: dequantized(form, w, along[name]) for name, w in p.items()}
    x = np.einsum("bhd,hde->be", (exact["table"][np.asarray(tokens)] @ exact["w"]).reshape(-1, 2, 64), exact["out"])
    for w in exact["stacked"]:
        x = x @ w
    assert got.dtype == jnp.bfloat16
    assert_near(got, x, HALF)
    assert fast.report.programs[0].narrowed == 4
    assert not fast.report.programs[0].not_narrowed


@pytest.mark.parametrize("policy", ["never", "always"])
@pytest.mark.parametrize(
    ("heads", "size", "group"),
    [(2, 128, (1, 64)), (4, 64, (1, 64)), (8, 32, (2, 32)), (16, 16, (4, 16)), (2, 96, (1, 96)), (3, 32, (1, 32)),
     (2, 16, (2, 16)), (1, 1, (1, 1)), (5, 7, (1, 7))],
)  # fmt: skip
def test_groups_run_over_two_contracted_dimensions(heads: int, size: int, group: tuple[int, int], policy: str) -> None:
    """KerasHub's output projection of an attention."""
    w, x = array(heads, size, 34), array(2, 3, heads, size)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(lambda w, x: jnp.einsum("bthd,hde->bte", x, w), w, weights="int4")
        got = fast(x)
    apart = np.asarray(w).reshape(heads // group[0], group[0], size // group[1], group[1], 34)
    largest = np.abs(apart).max(axis=(1, 3), keepdims=True)
    scale = (largest / np.float32(7)).astype("float64")
    exact = (np.clip(np.round(apart / scale), -7, 7) * scale).reshape(w.shape)
    assert_near(got, np.einsum("bthd,hde->bte", wide(x), exact), SUMMED)


def test_such_groups_are_read_by_the_kernel() -> None:
    w, x = array(4, 128, 64), array(1, 4, 128)
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(lambda w, x: jnp.einsum("bhd,hde->be", x, w), w, weights="int4")
        fast(x)
    dispatched = fast.report.programs[0].dispatched
    assert dispatched is not None
    assert [region.formula for region in dispatched.regions] == ["x @ (w · s)"]


def tied(form: str) -> Any:
    run = step(DECODER, form)
    return lambda p, cache, tokens, at: run({**p, "head": p["embedding"].T}, cache, tokens, at)


def exact_parameters(p: dict[str, Any], form: str, weights: str) -> Any:
    """The dequantized weights in f32."""

    def exact(leaf: Any, along: int) -> Any:
        return jnp.asarray(dequantized(weights, leaf, along), "float32")

    def layer(leaves: dict[str, Any], along: int) -> dict[str, Any]:
        # Norms of stacked layers are matrices, but no weights.
        return {name: w if name.startswith("norm") else exact(w, along) for name, w in leaves.items()}

    layers = [layer(one, 0) for one in p["layers"]] if form == "unrolled" else layer(p["layers"], 1)
    return {**p, "embedding": exact(p["embedding"], 1), "layers": layers}


# Each two of form, weights and policy; a form is narrowed before anything is dispatched.
@pytest.mark.parametrize(
    ("form", "weights", "policy"),
    [
        (form, weights, "always" if (number + (weights == "int8")) % 2 else "never")
        for number, form in enumerate(FORMS) for weights in ("int8", "int4")
    ],
)  # fmt: skip
def test_a_decoder_whose_head_is_its_table(form: str, weights: str, policy: str, tmp_path: Path) -> None:
    p = {name: leaf for name, leaf in parameters(DECODER, form, "float32").items() if name != "head"}
    exact = exact_parameters(p, form, weights)
    run = tied(form)
    with hlo_dispatch.enabled(policy="never"):
        stock = jax.jit(run)
        cache, tokens = empty_cache(DECODER, form, 1, 16, "float32"), jnp.arange(5, dtype=jnp.int32)[None]
        wanted, wanted_cache = stock(exact, cache, tokens, 0)
        wanted_next, wanted_cache = stock(exact, wanted_cache, wanted, 5)
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(jax.jit(run, donate_argnums=1), p, weights=weights)
        got, cache = fast(cache, tokens, 0)
        got_next, cache = fast(cache, got, 5)
        assert got.tolist() == wanted.tolist()
        assert got_next.tolist() == wanted_next.tolist()
        for leaf, other in zip(jax.tree.leaves(cache), jax.tree.leaves(wanted_cache), strict=True):
            assert_near(leaf, other, 1e-4)
        fast.save(tmp_path / "model")
        loaded = hlo_dispatch.load(tmp_path / "model")
        assert loaded(empty_cache(DECODER, form, 1, 16, "float32"), tokens, 0)[0].tolist() == wanted.tolist()


def test_which_tables_stay() -> None:
    """Those of which single elements are read, that are cut where products sum up, or closed over."""
    cosines = jnp.cos(jnp.arange(64.0).reshape(8, 8))
    p = {name: array(32, 32) for name in ("elements", "cut", "both", "added")}

    def network(p: dict[str, Any], x: Any, i: Any) -> Any:
        x = x + p["elements"][i, i] + cosines[i].sum() + p["added"][:, :1].T
        return x @ p["cut"] + x[:, :16] @ p["cut"][:16], p["both"][i] + x @ p["both"]

    x, i = array(1, 32), jnp.asarray([5])
    fast = hlo_dispatch.freeze(network, p, weights="int4", keep=True)
    for got, wanted in zip(fast(x, i), network(p, x, i), strict=True):
        assert_near(got, wanted, SUMMED)
    cut = "products sum it up along a dimension that is cut"
    assert fast.report.programs[0].not_narrowed == {
        "[0]['added']": "something else than a lookup or a product of two arrays reads it",
        "[0]['both']": cut,
        "[0]['cut']": cut,
        "[0]['elements']": "single elements of it are looked up",
        "(closed over: float32[8,8])": "it is only looked up in, and closed over",
    }
    assert fast.largest_change(x, i) < SUMMED


@pytest.mark.parametrize("form", FORMATS)
def test_how_far_results_move_is_told_of_tables_too(form: str) -> None:
    table, tokens = array(30, 64), jnp.arange(6) * 5
    fast = hlo_dispatch.freeze(lambda table, i: table[i] @ table.T, table, weights=form)
    got, wanted = fast(tokens), table[tokens] @ table.T
    change = fast.largest_change(tokens)
    assert change == pytest.approx(np.abs(got - wanted).max() / np.abs(wanted).max(), rel=1e-3)
    assert 0 < change < 0.2


def test_layers_that_are_indexed_one_by_one() -> None:
    """`fori_loop` over stacked weights, and experts that tokens choose."""
    p = {"layers": array(3, 64, 64), "experts": array(4, 64, 66)}

    def network(p: dict[str, Any], x: Any, chosen: Any) -> Any:
        x = jax.lax.fori_loop(0, 3, lambda n, x: jnp.tanh(x @ p["layers"][n]), x)
        return jnp.einsum("td,tde->te", x, p["experts"][chosen])

    x, chosen = array(5, 64), jnp.asarray([0, 3, 3, 1, 2])
    for form, exact in (("int8", rounded), ("int4", in_four_bits)):
        fast = hlo_dispatch.freeze(network, p, weights=form)
        q = {name: jnp.asarray(exact(w, 1), "float32") for name, w in p.items()}
        assert_near(fast(x, chosen), network(q, x, chosen), 10 * SUMMED)
        assert fast.report.programs[0].narrowed == 2
