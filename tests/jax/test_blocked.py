"""Our own blocked Cholesky, triangular solve and product: every triangle, side and order, at sizes around blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocked_kernels import choose_blocked, compiled

import hlo_dispatch
from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection import family_cost_models, linear_algebra_cost_model
from hlo_dispatch.vendor import kernels, libraries, registry
from processor import needs_avx512

pytestmark = pytest.mark.any_python

# Panels have 48 (f32) or 24 (f64) rows, sums 8 columns, blocks 192.
SIZES = (1, 7, 8, 9, 24, 49, 191, 193, 400)
LARGE_SIZES = (2, 3, 17, 64, 255, 1000, 2048)
LARGEST_RESIDUAL = 3  # in units of size * epsilon * norm


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "size" in metafunc.fixturenames:
        large = LARGE_SIZES if metafunc.config.getoption("all_sizes") else ()
        metafunc.parametrize("size", (*SIZES, *large))


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Our own code is chosen wherever there is some."""
    choose_blocked(monkeypatch)
    with jax.enable_x64(True):
        yield request.param


def dispatched(program: Callable, *arguments: np.ndarray, kernel: str) -> Any:
    return jax.tree.map(np.asarray, compiled(program, *arguments, kernel=kernel)(*arguments))


def residual(difference: np.ndarray, epsilon: float, *factors: np.ndarray) -> float:
    norms = np.prod([np.linalg.norm(factor) for factor in factors])
    return float(np.linalg.norm(difference) / (len(factors[0]) * epsilon * norms))


def positive(dtype: str, size: int) -> np.ndarray:
    value = np.random.default_rng(size).standard_normal((size, size))
    return (value @ value.T + size * np.eye(size)).astype(dtype)


@needs_avx512
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("by_column", [False, True])
def test_cholesky(dtype: str, size: int, upper: bool, by_column: bool) -> None:
    a = positive(dtype, size)
    # JAX reads the lower triangle for either; what is in the other one must not matter.
    half = np.tril(a)

    def program(a: jax.Array) -> jax.Array:
        factor = jnp.linalg.cholesky(a.T if by_column else a, upper=upper, symmetrize_input=False)
        return factor.T if by_column else factor

    factor = dispatched(program, half.T.copy() if by_column else half, kernel="cholesky").astype(np.float64)
    factor = factor.T if by_column else factor
    product = factor.T @ factor if upper else factor @ factor.T
    assert residual(product - a, np.finfo(dtype).eps, a) < LARGEST_RESIDUAL
    assert np.array_equal(factor, np.triu(factor) if upper else np.tril(factor))


@needs_avx512
@pytest.mark.parametrize("rows", [1, 3, 8, 17, 32, 33, 96])
@pytest.mark.parametrize("batch", [(2,), (16,), (2, 19)], ids=str)
@pytest.mark.parametrize(("upper", "symmetrise"), [(False, True), (True, False)])
@pytest.mark.parametrize("by_column", [False, True])
def test_many_small_ones(dtype: str, rows: int, batch: tuple, upper: bool, symmetrise: bool, by_column: bool) -> None:
    """Side by side in the lanes of a vector, the last group not full."""
    random = np.random.default_rng(rows)
    value = random.standard_normal((*batch, rows, rows))
    a = (value @ np.swapaxes(value, -1, -2) + rows * np.eye(rows)).astype(dtype)
    half = a if symmetrise else np.tril(a)
    if symmetrise:
        half = half + np.triu(np.ones((rows, rows)), 1).astype(dtype) - np.tril(np.ones((rows, rows)), -1).astype(dtype)
    given = np.swapaxes(half, -1, -2).copy() if by_column else half

    def program(a: jax.Array) -> jax.Array:
        a = jnp.swapaxes(a, -1, -2) if by_column else a
        return jnp.linalg.cholesky(a, upper=upper, symmetrize_input=symmetrise)

    factor = dispatched(program, given, kernel="cholesky").astype(np.float64)
    transposed = np.swapaxes(factor, -1, -2)
    product = transposed @ factor if upper else factor @ transposed
    bound = LARGEST_RESIDUAL * max(rows, 4) * np.finfo(dtype).eps * np.linalg.norm(a, axis=(-2, -1))
    assert np.all(np.linalg.norm(product - a, axis=(-2, -1)) <= bound)


@needs_avx512
def test_one_bad_matrix_of_many(dtype: str) -> None:
    """The others keep their factors."""
    a = np.tile(4 * np.eye(9, dtype=dtype), (37, 1, 1))
    a[5, 3, 3], a[36, 8, 8], a[20, 0, 0] = -1, np.nan, 0
    factor = dispatched(jnp.linalg.cholesky, a, kernel="cholesky")
    bad = {n for n in range(37) if np.isnan(factor[n]).any()}
    assert bad == {5, 20, 36}
    np.testing.assert_array_equal(factor[[n for n in range(37) if n not in bad]], np.tile(2 * np.eye(9), (34, 1, 1)))


@needs_avx512
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_triangular_solve(dtype: str, size: int, left: bool, lower: bool) -> None:
    random = np.random.default_rng(size)
    sides = size // 2 + 3
    a = (np.tril(random.standard_normal((size, size))) / size + np.eye(size)).astype(dtype)
    a = a if lower else a.T.copy()
    b = random.standard_normal((size, sides) if left else (sides, size)).astype(dtype)
    for transposed, unit in product((False, True), repeat=2):
        if unit:
            np.fill_diagonal(a, 7)  # which nobody may read
        x = dispatched(
            lambda a, b, transposed=transposed, unit=unit: jax.lax.linalg.triangular_solve(
                a, b, left_side=left, lower=lower, transpose_a=transposed, unit_diagonal=unit
            ),
            a,
            b,
            kernel="triangular_solve",
        ).astype(np.float64)
        matrix = a.astype(np.float64)
        if unit:
            np.fill_diagonal(matrix, 1)
        matrix = matrix.T if transposed else matrix
        difference = (matrix @ x if left else x @ matrix) - b
        assert residual(difference, np.finfo(dtype).eps, matrix, x) < LARGEST_RESIDUAL


@needs_avx512
@pytest.mark.parametrize("lower", [False, True])
def test_zeros_are_skipped_and_what_follows_is_not(dtype: str, lower: bool) -> None:
    """Right-hand sides that begin with zeros: the unit matrix, a triangle, nothing but zeros, one late NaN."""
    size = 230
    a = (np.tril(np.random.default_rng(0).standard_normal((size, size))) / size + np.eye(size)).astype(dtype)
    a = a if lower else a.T.copy()
    triangle = np.tril(np.ones((size, size), dtype)) if lower else np.triu(np.ones((size, size), dtype))
    late = np.zeros((size, size), dtype)
    late[-1 if lower else 0, 5] = np.nan
    for b in (np.eye(size, dtype=dtype), triangle, np.zeros((size, size), dtype), late):
        x = dispatched(
            lambda a, b: jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=lower),
            a,
            b,
            kernel="triangular_solve",
        )
        if b is late:
            assert np.argwhere(np.isnan(x)).tolist() == np.argwhere(np.isnan(late)).tolist()
        else:
            np.testing.assert_allclose(x, np.linalg.solve(a.astype(np.float64), b), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def products_of_factors() -> dict[tuple[str, int, str], Any]:
    """Compiled for the first kind of matrix and kept for the others."""
    return {}


@needs_avx512
@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("kind", ["full", "lower", "upper", "zeros"])
def test_product_of_a_factor(dtype: str, size: int, kind: str, order: str, products_of_factors) -> None:
    """A factor and its transpose, on either side of what is full, triangular or nothing but zeros."""
    other = np.random.default_rng(size + 1).standard_normal((size, size))
    other = {"full": other, "lower": np.tril(other), "upper": np.triu(other), "zeros": 0 * other}[kind].astype(dtype)
    a = positive(dtype, size)
    spread = np.asfortranarray(other) if order == "columns" else other

    def program(a: jax.Array, other: jax.Array) -> list[jax.Array]:
        factor = jnp.linalg.cholesky(a)
        other = other.T if order == "columns" else other
        return [factor, factor @ other, factor.T @ other, other @ factor, other @ factor.T, (other @ factor.T).T]

    arguments = a, spread.T if order == "columns" else spread
    if (dtype, size, order) not in products_of_factors:
        kernel = "triangular_product" if size > 1 else "cholesky"
        products_of_factors[dtype, size, order] = compiled(program, *arguments, kernel=kernel)
    results = products_of_factors[dtype, size, order](*arguments)
    factor, *products = (np.asarray(result, np.float64) for result in results)
    wide = other.astype(np.float64)
    wanted = [factor @ wide, factor.T @ wide, wide @ factor, wide @ factor.T, (wide @ factor.T).T]
    for got, want in zip(products, wanted, strict=True):
        assert np.linalg.norm(got - want) <= LARGEST_RESIDUAL * np.finfo(dtype).eps * size * (
            np.linalg.norm(factor) * np.linalg.norm(wide)
        )


@needs_avx512
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_zeros_times_what_is_not_finite(dtype: str, value: float) -> None:
    """0 · ∞ and 0 · NaN are NaN wherever stock XLA's are."""
    a = positive(dtype, 130)
    for place in ((0, 0), (3, 129), (129, 3), (70, 70)):
        other = np.tril(np.ones((130, 130), dtype))
        other[place] = value

        def program(a: jax.Array, other: jax.Array) -> jax.Array:
            return jnp.linalg.cholesky(a).T @ other

        got = dispatched(program, a, other, kernel="triangular_product")
        np.testing.assert_array_equal(np.isnan(got), np.isnan(np.asarray(jax.jit(program)(a, other))))


@needs_avx512
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan])
@pytest.mark.parametrize("place", [0, 5, 190, 250])
def test_a_bad_pivot_makes_every_element_nan(dtype: str, value: float, place: int) -> None:
    a = np.eye(300, dtype=dtype)
    a[place, place] = value
    assert np.isnan(dispatched(jnp.linalg.cholesky, a, kernel="cholesky")).sum() >= 300 * 301 // 2


@needs_avx512
def test_info_counts_from_one(dtype: str) -> None:
    library = libraries.own()
    assert not isinstance(library, Unavailable)
    attributes = {"type": "f32" if dtype == "float32" else "f64", "abi": registry.abi(), "uplo": ord("L")}
    attributes["library"] = library.version
    attributes |= {"a_dims": [4, 4], "a_strides": [4, 1], "factor_dims": [4, 4], "factor_strides": [1, 4]}
    planned = kernels.plan("blocked.cholesky", attributes)
    assert not isinstance(planned, Refusal)
    assert planned.implementation == ("blocked_spotrf" if dtype == "float32" else "blocked_dpotrf")
    refused = kernels.plan("blocked.cholesky", attributes | {"type": "c64"})
    assert isinstance(refused, Refusal)
    assert "real matrices only" in refused.sentence


def test_chosen_for_large_matrices_where_the_libraries_lack_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    amd = Machine("AMD EPYC", frozenset(("avx2", "avx512f", "avx512dq")), 2)
    intel = Machine("Intel Xeon", amd.features, 2)
    old = Machine("AMD EPYC", frozenset(("avx2",)), 2)
    first: list[list[str]] = []

    def ordered(match, _):
        first.append([linear_algebra_cost_model.by_expected_speed(match, machine)[0] for machine in (amd, intel, old)])
        return linear_algebra_cost_model.by_expected_speed(match, amd)

    monkeypatch.setattr(family_cost_models, "by_expected_speed", ordered)
    for size in (2000, 100):
        with hlo_dispatch.enabled(policy="heuristic"):
            jax.jit(lambda a: jnp.linalg.cholesky(a)).lower(np.zeros((size, size), np.float32)).compile()
    assert first[0] == ["blocked.cholesky", "onemkl.cholesky", "scipy.cholesky"]
    assert first[-1] == ["scipy.cholesky", "onemkl.cholesky", "scipy.cholesky"]
