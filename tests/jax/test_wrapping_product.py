"""Products and convolutions of integers whose result stays integer: the same to the bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from processor import lacks_integers
from side_by_side import run_both

KERNEL = "own.integer_product"
TYPES = ("int8", "uint8", "int16", "int32")


def drawn(kind: str, *shape: int) -> np.ndarray:
    bounds = np.iinfo(kind)
    values = np.random.default_rng(len(shape)).integers(bounds.min, bounds.max, shape, endpoint=True, dtype=kind)
    values.flat[:2] = bounds.min  # two products of the least are the largest sum
    return values


def same(program: Any, *arguments: Any, kernel: str = KERNEL) -> None:
    both = run_both(program, *arguments)
    assert kernel in [region.kernel for region in both.report.candidates]
    for stock, ours in zip(both.stock, both.dispatched, strict=True):
        assert stock.dtype == ours.dtype
        np.testing.assert_array_equal(ours, stock)


@pytest.mark.parametrize("result", [None, "int32"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("sizes", [(5, 7, 3), (64, 33, 70), (1, 256, 40), (100, 31, 1), (13, 1, 65)], ids=str)
def test_products(kind: str, result: str | None, sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    a, b = drawn(kind, rows, depth), drawn(kind, depth, columns)
    both = run_both(lambda a, b: jnp.matmul(a, b, preferred_element_type=result), a, b)
    expected = (a.astype("int64") @ b.astype("int64")).astype(result or kind)
    np.testing.assert_array_equal(both.dispatched[0], expected)
    np.testing.assert_array_equal(both.stock[0], expected)
    assert min(sizes) == 1 or [region.kernel for region in both.report.candidates] == [KERNEL]


@pytest.mark.parametrize("kind", TYPES)
def test_batches_and_transposed_operands(kind: str) -> None:
    a, b = drawn(kind, 3, 2, 9, 8), drawn(kind, 3, 2, 8, 11)
    same(jnp.matmul, a, b)
    same(lambda a, b: jnp.einsum("bhkm,bhkn->bhmn", a, b), np.swapaxes(a, 2, 3).copy(), b)
    same(lambda a, b: a.T @ b, drawn(kind, 8, 40), drawn(kind, 8, 33))


@pytest.mark.parametrize(
    ("sizes", "is_taken"),
    [((64, 64, 300), True), ((2, 2048, 300), False), ((2048, 2, 300), False), ((2, 300_000, 2), False)],
    ids=str,
)
def test_the_cost_model_leaves_tiles_of_padding(sizes: tuple[int, int, int], is_taken: bool) -> None:
    rows, depth, columns = sizes
    with hlo_dispatch.enabled(policy="heuristic"):
        report = hlo_dispatch.explain(jnp.matmul, np.ones((rows, depth), "int32"), np.ones((depth, columns), "int32"))
    assert [region.kernel == KERNEL for region in report.candidates] == [is_taken], report


def test_copies_of_many_times_the_operands_are_refused() -> None:
    """Of two columns a panel of 32 would be packed."""
    with hlo_dispatch.enabled(policy="always"):
        report = hlo_dispatch.explain(jnp.matmul, np.ones((2, 300_000), "int32"), np.ones((300_000, 2), "int32"))
    (region,) = report.candidates
    assert region.kernel is None
    assert "many times their memory" in region.reason


def test_in_loops_under_vmap_and_with_what_follows() -> None:
    a, b = drawn("int16", 12, 12), drawn("int16", 12, 12)
    same(lambda a, b: jax.lax.fori_loop(0, 3, lambda _, a: a @ b, a), a, b)
    same(lambda a, b: jax.lax.scan(lambda c, _: (c @ b, c), a, None, length=3), a, b)
    same(jax.vmap(jnp.matmul, (0, None)), drawn("int16", 4, 5, 12), b)
    same(lambda a, b: jnp.maximum(a @ b + 3, 0) >> 2, a, b)
    same(lambda a, b: jnp.matmul(a, b, preferred_element_type="int32") % 7, a.astype("int8"), b.astype("int8"))


def test_in_a_branch_donated_and_where_sums_become_numbers() -> None:
    a, b = drawn("int16", 12, 12), drawn("int16", 12, 12)
    same(lambda a, b: jax.lax.cond(a[0, 0] > 0, lambda a: a, lambda a: a @ b, a), a, b)
    both = run_both(lambda a, b: a @ b, a, b, donate_argnums=0)
    np.testing.assert_array_equal(both.dispatched[0], both.stock[0])
    same(lambda a, b: jnp.matmul(a, b, preferred_element_type="int32").astype("float32"), a, b)
    same(lambda a, b: (a @ b).astype("float32"), a, b)


def test_types_of_their_own() -> None:
    """What is read keeps its sign, or has none."""
    a, b = drawn("uint8", 9, 70), drawn("int8", 70, 33)
    same(lambda a, b: a.astype("int32") @ b.astype("int32"), a, b)
    same(lambda a, b: a.astype("int32") @ b, a, drawn("int32", 70, 33))
    same(lambda a, b: a.astype("int16") @ b.astype("int16"), a, b)


def test_frozen_and_from_several_threads() -> None:
    sources, b = [drawn("int16", 40, 64) * np.int16(number) for number in range(8)], drawn("int16", 64, 48)
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda b, a: a @ b, b)
        frozen(sources[0])
    with ThreadPoolExecutor(4) as pool:
        for got, a in zip(pool.map(frozen, sources), sources, strict=True):
            np.testing.assert_array_equal(got, a @ b)


def test_they_are_measured_like_any_other() -> None:
    with hlo_dispatch.enabled(policy="measure"):
        report = hlo_dispatch.explain(jnp.matmul, drawn("int16", 128, 256), drawn("int16", 256, 128))
    (region,) = report.candidates
    assert region.kernel == KERNEL, region


@pytest.mark.skipif(bool(lacks_integers()), reason=lacks_integers())
@pytest.mark.parametrize("window", [2, 3])
def test_sums_of_convolutions_stay_integer(window: int) -> None:
    x, w = drawn("int8", 2, 9, 8, 16), drawn("int8", window, window, 16, 24)

    def convolved(x: Any, w: Any) -> Any:
        order = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=order, preferred_element_type=jnp.int32
        )

    same(convolved, x, w, kernel="onednn.convolution")
    # What follows would be rounded in a post-op.
    same(lambda x, w: jnp.maximum(convolved(x, w) * 1001, 17), x, w, kernel="onednn.convolution")
