"""Linear algebra by oneMKL and by SciPy's LAPACK: residuals as LAPACK's own tests bound them, failures as stock's.

Factors are not compared one by one, as eigenvectors may point either way; what they satisfy is checked in double
precision. `--all-sizes` adds the large ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.selection import family_cost_models
from side_by_side import QUICKLY, assert_agree, assert_close, run_both

DTYPES = ("float32", "float64", "complex64", "complex128")
SIZES = (1, 3, 17)
BATCHES = ((), (2, 3))
MORE_SIZES = (2, 64, 255)
MORE_BATCHES = ((1,), (7,))
LARGE_SIZES = (1000, 2048)
# In units of size * epsilon * norm; LAPACK's own test suite fails above 30.
LARGEST_RESIDUAL = 30


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Batches and sizes together: batches of large matrices take too long even where everything is asked for."""
    if "size" in metafunc.fixturenames:
        everything = metafunc.config.getoption("all_sizes")
        sizes = (*SIZES, *MORE_SIZES) if everything else SIZES
        batches = (*BATCHES, *MORE_BATCHES) if everything else BATCHES
        pairs = [(batch, size) for size in sizes for batch in batches]
        metafunc.parametrize(("batch", "size"), pairs + [((), size) for size in LARGE_SIZES if everything], ids=str)


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> Iterator[str]:
    with jax.enable_x64(True):
        yield request.param


@pytest.fixture(params=["onemkl", "scipy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """This library's kernels are chosen wherever it has one."""
    chosen = request.param

    def chosen_first(match, machine):
        return sorted(match.kernels, key=lambda kernel: not kernel.startswith(chosen))

    monkeypatch.setattr(family_cost_models, "by_expected_speed", chosen_first)
    monkeypatch.setattr(family_cost_models, "is_worth_calling_library", lambda match, _: (True, "under test"))
    return chosen


def dispatched(program: Callable, *arguments, calls: int, library: str = ""):
    """The program's results, computed by so many of the library's kernels."""
    with hlo_dispatch.enabled(policy="heuristic"):
        compiled = jax.jit(lambda *inputs: program(*inputs)).lower(*arguments).compile(QUICKLY)
    assert compiled.as_text().count(f'custom_call_target="hlo_dispatch.{library}') == calls, compiled.as_text()
    return compiled(*arguments)


def general(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    value = random.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        value = value + 1j * random.standard_normal(shape)
    return value.astype(dtype)


def positive(dtype: str, *shape: int) -> np.ndarray:
    value = general(dtype, *shape)
    return value @ adjoint(value) + shape[-1] * np.eye(shape[-1], dtype=dtype)


def adjoint(value: np.ndarray) -> np.ndarray:
    return np.swapaxes(np.conj(value), -1, -2)


def assert_residual(difference: np.ndarray, *factors: np.ndarray) -> None:
    """‖difference‖ ≤ 30 · n · ε · ‖factor‖ · …, each batch for itself."""
    epsilon = np.finfo(factors[0].dtype).eps
    bound = LARGEST_RESIDUAL * max(difference.shape[-2:]) * epsilon * np.ones(difference.shape[:-2])
    for factor in factors:
        bound = bound * np.linalg.norm(factor, axis=(-2, -1))
    assert np.all(np.linalg.norm(difference, axis=(-2, -1)) <= bound)


def wide(*values) -> list[np.ndarray]:
    """In double precision, where residuals are computed."""
    return [np.asarray(v).astype(np.result_type(np.asarray(v).dtype, np.float64)) for v in values]


# --- residuals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_product(dtype, batch, size, turned, monkeypatch) -> None:
    """What oneDNN does not multiply, in every order; what it does is not this routine's."""
    monkeypatch.setattr(family_cost_models, "is_worth_calling_library", lambda match, _: (True, "under test"))
    first, second = (2 * size + 1, size), (size, size + 2)
    a = general(dtype, *batch, *(first[::-1] if turned[0] else first))
    b = general(dtype, *batch, *(second[::-1] if turned[1] else second), seed=1)

    def program(a, b):
        a = jnp.swapaxes(a, -1, -2) if turned[0] else a
        b = jnp.swapaxes(b, -1, -2) if turned[1] else b
        return a @ b, jnp.swapaxes(jnp.sin(a) @ b, -1, -2)

    with hlo_dispatch.enabled(policy="heuristic"):
        compiled = jax.jit(lambda *inputs: program(*inputs)).lower(a, b).compile(QUICKLY)
    calls = compiled.as_text().count('custom_call_target="hlo_dispatch.onemkl.product')
    assert calls == 0 if dtype == "float32" else size < 17 or calls >= 1, compiled.as_text()
    plain, right = wide(np.swapaxes(a, -1, -2) if turned[0] else a, np.swapaxes(b, -1, -2) if turned[1] else b)
    product, other = wide(*compiled(a, b))
    for left, got in ((plain, product), (np.sin(plain), np.swapaxes(other, -1, -2))):
        bound = LARGEST_RESIDUAL * size * np.finfo(dtype).eps * np.linalg.norm(left) * np.linalg.norm(right)
        assert np.linalg.norm(got - left @ right) <= bound


@pytest.mark.parametrize(("upper", "symmetrise"), [(False, True), (True, False), (False, False)])
def test_cholesky(dtype, library, batch, size, upper, symmetrise) -> None:
    a = positive(dtype, *batch, size, size)
    factor = dispatched(
        lambda x: jnp.linalg.cholesky(x, upper=upper, symmetrize_input=symmetrise), a, calls=1, library=library
    )
    factor = np.asarray(factor)
    assert np.array_equal(factor, np.triu(factor) if upper else np.tril(factor))
    wide_factor, wide_a = wide(factor, a)
    product = adjoint(wide_factor) @ wide_factor if upper else wide_factor @ adjoint(wide_factor)
    assert_residual(product - wide_a, a)


@pytest.mark.parametrize("batch", [(), (7,)], ids=str)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("trans", "unit"), [(0, False), (1, True), (2, False)])
@pytest.mark.parametrize("left", [False, True])
def test_triangular_solve(dtype, library, batch, lower, trans, unit, left) -> None:
    size, sides = 17, 5
    a = (general(dtype, *batch, size, size) / size + np.eye(size)).astype(dtype)
    b = general(dtype, *batch, *((size, sides) if left else (sides, size)), seed=1)

    def program(a, b):
        return jax.lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=trans > 0, conjugate_a=trans == 2, unit_diagonal=unit
        )

    x = np.asarray(dispatched(program, a, b, calls=1, library=library))
    triangle = np.tril(a) if lower else np.triu(a)
    if unit:
        triangle = triangle - triangle * np.eye(size, dtype=dtype) + np.eye(size, dtype=dtype)
    operator = {0: triangle, 1: np.swapaxes(triangle, -1, -2), 2: adjoint(triangle)}[trans]
    wide_operator, wide_x, wide_b = wide(operator, x, b)
    product = wide_operator @ wide_x if left else wide_x @ wide_operator
    assert_residual(product - wide_b, operator, x)


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("columns_a", [False, True])
@pytest.mark.parametrize("columns_x", [False, True])
def test_triangular_solve_in_every_order(library, conjugate, columns_a, columns_x) -> None:
    """Row-major or column-major a and x; conjugated without a transpose, which BLAS does not have."""
    with jax.enable_x64(True):
        a, b = general("complex128", 9, 9) + 9 * np.eye(9), general("complex128", 9, 4, seed=1)

        def program(a, b):
            a = a.T if columns_a else a
            b = b.reshape(4, 9).T if columns_x else b
            x = jax.lax.linalg.triangular_solve(
                a, b, left_side=True, lower=True, transpose_a=conjugate, conjugate_a=conjugate
            )
            return x.T if columns_x else x

        assert_agree(run_both(program, a, b), 1e-13)


def test_lu(dtype, library, batch, size) -> None:
    a = general(dtype, *batch, size, size + 2)
    lu, pivots, permutation = dispatched(jax.lax.linalg.lu, a, calls=1, library=library)
    lower = np.tril(np.asarray(lu)[..., :size], -1) + np.eye(size)
    upper = np.triu(np.asarray(lu))
    wide_lower, wide_upper, wide_a = wide(lower, upper, a)
    expected = np.take_along_axis(wide_a, np.asarray(permutation)[..., None], -2)
    assert_residual(wide_lower @ wide_upper - expected, a)
    assert np.all(np.asarray(pivots) >= np.arange(size))


def test_solve(dtype, library, batch, size) -> None:
    a, b = positive(dtype, *batch, size, size), general(dtype, *batch, size, 3, seed=1)
    x = dispatched(jnp.linalg.solve, a, b, calls=3, library=library)
    wide_a, wide_x, wide_b = wide(a, x, b)
    assert_residual(wide_a @ wide_x - wide_b, a, np.asarray(x))


@pytest.mark.parametrize(("mode", "extra"), [("reduced", -1), ("reduced", 4), ("complete", 0)])
def test_qr(dtype, library, batch, size, mode, extra) -> None:
    a = general(dtype, *batch, size, max(1, size + extra))
    q, r = dispatched(lambda a: jnp.linalg.qr(a, mode=mode), a, calls=2, library=library)
    wide_q, wide_r, wide_a = wide(q, r, a)
    assert_residual(wide_q @ wide_r - wide_a, a)
    identity = np.eye(wide_q.shape[-1], dtype=dtype)
    assert_residual(adjoint(wide_q) @ wide_q - identity, np.broadcast_to(identity, (*batch, *identity.shape)))


def test_eigh(dtype, library, batch, size) -> None:
    a = general(dtype, *batch, size, size)
    a = (a + adjoint(a)) / 2
    values, vectors = dispatched(jnp.linalg.eigh, a, calls=1, library=library)
    alone = dispatched(jnp.linalg.eigvalsh, a, calls=1, library=library)
    wide_values, wide_vectors, wide_a = wide(values, vectors, a)
    assert_residual(wide_a @ wide_vectors - wide_vectors * wide_values[..., None, :], a)
    identity = np.eye(size, dtype=dtype)
    assert_residual(adjoint(wide_vectors) @ wide_vectors - identity, np.broadcast_to(identity, a.shape))
    assert np.all(np.diff(wide_values) >= 0)
    assert_residual((np.asarray(alone) - wide_values)[..., None, :], a)


@pytest.mark.parametrize(("full", "extra"), [(False, -1), (True, 4)])
def test_svd(dtype, library, batch, size, full, extra) -> None:
    a = general(dtype, *batch, size, max(1, size + extra))
    u, s, vt = dispatched(lambda a: jnp.linalg.svd(a, full_matrices=full), a, calls=1, library=library)
    alone = dispatched(lambda a: jnp.linalg.svd(a, compute_uv=False), a, calls=1, library=library)
    wide_u, wide_s, wide_vt, wide_a = wide(u, s, vt, a)
    count = wide_s.shape[-1]
    assert_residual((wide_u[..., :count] * wide_s[..., None, :]) @ wide_vt[..., :count, :] - wide_a, a)
    for factor in (wide_u, adjoint(wide_vt)):
        identity = np.eye(factor.shape[-1], dtype=dtype)
        assert_residual(adjoint(factor) @ factor - identity, np.broadcast_to(identity, (*batch, *identity.shape)))
    assert np.all(np.diff(wide_s) <= 0)
    assert_residual((np.asarray(alone) - wide_s)[..., None, :], a)


# --- the same as stock ------------------------------------------------------------------------------------------

PROGRAMS = {
    "cho_solve": lambda a, b: jsl.cho_solve(jsl.cho_factor(a), b),
    "cho_solve_lower": lambda a, b: jsl.cho_solve(jsl.cho_factor(a, lower=True), b),
    "inv": lambda a, b: jnp.linalg.inv(a) @ b,
    "det": lambda a, b: jnp.linalg.det(a / 8),
    "slogdet": lambda a, b: jnp.linalg.slogdet(a),
    "lu": lambda a, b: jsl.lu(a),
    "lu_solve": lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b),
    "solve_vector": lambda a, b: jnp.linalg.solve(a, b[:, 0]),
    "solve_gradient": jax.grad(lambda a, b: jnp.sum(jnp.linalg.solve(a, b) ** 2)),
    "cholesky_gradient": jax.grad(lambda a, b: jnp.sum(jnp.linalg.cholesky(a) ** 3)),
    "cholesky_jvp": lambda a, b: jax.jvp(jnp.linalg.cholesky, (a,), (a @ a,)),
    "vmap": lambda a, b: jax.vmap(jnp.linalg.solve, (0, None))(jnp.stack([a, a + 1, a.T]), b),
    "vmap_sides": lambda a, b: jax.vmap(lambda c: jsl.solve_triangular(a, c), 1)(b),
    "logdet_and_solve": lambda a, b: (lambda f: jsl.cho_solve(f, b).sum() + jnp.log(jnp.diagonal(f[0])).sum())(
        jsl.cho_factor(a, lower=True)
    ),
    "eigh_function": lambda a, b: (lambda w, v: (v * jnp.sqrt(w)) @ v.T)(*jnp.linalg.eigh(a)),
    "pinv": lambda a, b: jnp.linalg.pinv(a[:, :5]),
    "eig": lambda a, b: jnp.abs(jnp.linalg.eigvals(a)),
    "scan": lambda a, b: jax.lax.scan(lambda c, _: (jnp.linalg.cholesky(c @ c.T / 8 + a), c[0]), a / 4, length=3),
    "cond": lambda a, b: jax.lax.cond(b[0, 0] > 0, jnp.linalg.cholesky, jnp.linalg.inv, a),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_stock(library, name) -> None:
    with jax.enable_x64(True):
        a, b = positive("float64", 8, 8), general("float64", 8, 3, seed=1)
        both = run_both(PROGRAMS[name], a, b, policy="heuristic")
        assert_agree(both, 1e-12)
        assert (both.calls > 0) == (name != "eig")


@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
@pytest.mark.parametrize(
    "program",
    [
        jnp.linalg.cholesky,
        lambda a: jax.lax.linalg.cholesky(a, symmetrize_input=False),
        jnp.linalg.inv,
        jnp.linalg.slogdet,
        lambda a: jnp.linalg.svd(a, compute_uv=False),
    ],
    ids=["cholesky", "cholesky_plain", "inv", "slogdet", "svd"],
)
def test_failures_are_stocks(library, program, batch, value) -> None:
    """One matrix of a batch is not positive definite, singular or not finite: NaN (or not) as stock has it."""
    a = np.array(positive("float32", *batch, 6, 6))
    bad = a[1] if batch else a
    bad[:] = np.diag([4.0, 4, value, 4, 4, 4])
    both = run_both(program, a, policy="heuristic")
    for stock, got in zip(both.stock, both.dispatched, strict=True):
        for wanted, found in zip(stock, got, strict=True) if batch else [(stock, got)]:
            # How far a NaN or a division by zero spreads depends on the order of the sums. LAPACK's potrf reports
            # a NaN on the diagonal as a failure, as oneMKL's does; OpenBLAS's goes on past it.
            if np.isfinite(wanted).all() or value == -1:
                assert_close(found, wanted, 1e-5)
            else:
                assert not np.isfinite(found).all()


def test_pivots_and_info_are_stocks(library) -> None:
    a = np.array(general("float32", 3, 6, 6))
    a[1] = 0
    a[2, :, 3] = np.nan
    stock = jax.tree.map(np.asarray, jax.jit(jax.lax.linalg.lu)(a))
    got = jax.tree.map(np.asarray, dispatched(jax.lax.linalg.lu, a, calls=1))
    for wanted, found in zip(stock[1:], got[1:], strict=True):
        np.testing.assert_array_equal(found[:2], wanted[:2])


@pytest.mark.parametrize("shape", [(0, 0), (0, 4, 4), (3, 0, 0)], ids=str)
def test_empty_matrices_stay_with_xla(shape) -> None:
    a = np.zeros(shape, np.float32)
    for program in (jnp.linalg.cholesky, jnp.linalg.slogdet, jnp.linalg.eigvalsh):
        assert_agree(run_both(program, a))


# --- buffers and threads --------------------------------------------------------------------------------------


def test_a_donated_operand(library) -> None:
    """What LAPACK would overwrite may be a buffer that the result shares with a donated input."""
    a = positive("float32", 20, 20)
    both = run_both(lambda a: (jnp.linalg.cholesky(a), a + 1), a, policy="heuristic", donate_argnums=0)
    assert_agree(both)


def test_carried_buffers(library) -> None:
    """Loops share buffers between turns; the kernel reads past the copies XLA made to protect them."""

    def turn(i, state):
        a, b, history = state
        factor = jax.lax.linalg.cholesky(a, symmetrize_input=False)
        x = jsl.cho_solve((factor, True), b)
        history = history.at[i].set(factor[0])
        return a + 0.1 * factor.T @ factor, x / jnp.linalg.norm(x), history

    def program(a, b):
        return jax.lax.fori_loop(0, 5, turn, (a, b, jnp.zeros((5, 12))))

    both = run_both(program, positive("float32", 12, 12), general("float32", 12, 12), policy="heuristic")
    assert both.calls
    assert_agree(both, 1e-4)


def test_many_threads_run_one_program(library) -> None:
    """Large and small matrices at once, from more threads than there are processors."""

    def program(a, c):
        return jnp.linalg.cholesky(a), jnp.linalg.solve(c, c[..., :1]), jnp.fft.fft2(a)

    inputs = [(positive("float32", 200, 200) + i, positive("float32", 40, 8, 8) + i) for i in range(4)]
    with hlo_dispatch.enabled(policy="heuristic"):
        compiled = jax.jit(program).lower(*inputs[0]).compile()
    assert "hlo_dispatch." in compiled.as_text()
    expected = [jax.tree.map(np.asarray, compiled(*pair)) for pair in inputs]
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(10):
            got = jax.tree.map(np.asarray, compiled(*inputs[number % 4]))
            for wanted, found in zip(expected[number % 4], got, strict=True):
                if not np.allclose(found, wanted, rtol=1e-4, atol=1e-4):
                    wrong.append(f"thread {number}, turn {turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
