"""Elementwise regions around slow functions: one call, and numbers no further from float64 than stock's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import special

import hlo_dispatch
from side_by_side import Both, assert_agree, run_both

RNG = np.random.default_rng(11)
SINGLE, DOUBLE = "float32", "float64"


def random(*dims: int, dtype: str = SINGLE) -> jax.Array:
    return jnp.asarray(RNG.standard_normal(dims), dtype)


def check(program: Callable, *arguments: Any, calls: int = 1, **options: Any) -> Both:
    found = run_both(program, *arguments, **options)
    assert [region.kernel for region in found.report.dispatched] == ["svml.elementwise"] * calls
    assert_agree(found)
    return found


# --- numbers ------------------------------------------------------------------------------------------------


def special_numbers(dtype: str) -> np.ndarray:
    limits = np.finfo(dtype)
    small = [limits.tiny, limits.tiny / 4, limits.smallest_subnormal, 1 - limits.eps / 2, 1 + limits.eps, 0.5, 1.0]
    large = [np.pi / 2, 22.0, 1e5, 1e6, 1e7, 1e10, 1e20, 1e30, limits.max, np.inf]
    positive = np.array([0.0, *small, *large], dtype)
    return np.concatenate([positive, -positive, np.array([np.nan], dtype)])


def numbers(dtype: str) -> np.ndarray:
    """Special ones, dense ones, and some of every magnitude."""
    most = 37 if dtype == SINGLE else 300
    every = 10 ** RNG.uniform(-most, most, 3000) * RNG.choice([-1, 1], 3000)
    dense = [RNG.standard_normal(3000), RNG.uniform(-1e7, 1e7, 3000), every]
    return np.concatenate([special_numbers(dtype), *dense]).astype(dtype)


def units_off(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The error in units in the last place; subnormal results may be 0, as XLA's are."""
    dtype = found.dtype
    with np.errstate(all="ignore"):
        rounded = wanted.astype(dtype)
        unit = np.spacing(np.abs(rounded)).astype(wanted.dtype)
        off = np.abs(found.astype(wanted.dtype) - wanted) / unit
        off = np.where(np.isfinite(rounded) & np.isfinite(found), off, np.where(found == rounded, 0, np.inf))
        off = np.where(np.abs(wanted) < np.finfo(dtype).tiny, 0, off)
        off = np.where(np.isnan(wanted) & np.isnan(found), 0, off)
        return np.where(np.isnan(wanted) != np.isnan(found), np.inf, off)


ONE: dict[str, tuple[Callable, Callable]] = {
    "sin": (jnp.sin, np.sin), "cos": (jnp.cos, np.cos), "tan": (jnp.tan, np.tan), "cbrt": (jnp.cbrt, np.cbrt),
    "erf": (jax.scipy.special.erf, special.erf), "log": (jnp.log, np.log), "log1p": (jnp.log1p, np.log1p),
}  # fmt: skip
TWO: dict[str, tuple[Callable, Callable]] = {"atan2": (jnp.arctan2, np.arctan2), "power": (jnp.power, np.power)}


def compare(function: Callable, reference: Callable, *given: np.ndarray) -> None:
    dtype = given[0].dtype
    wide = np.longdouble if dtype == np.float64 and reference is not special.erf else np.float64
    found = run_both(function, *map(jnp.asarray, given))
    assert [region.kernel for region in found.report.dispatched] == ["svml.elementwise"]
    with np.errstate(all="ignore"):
        wanted = reference(*(numbers.astype(wide) for numbers in given))
    stock, ours = found.stock[0], found.dispatched[0]
    assert (units_off(ours, wanted) <= units_off(stock, wanted) + 1).all()
    zeros = (wanted == 0) & (stock == 0)
    assert (ours[zeros] == 0).all()
    np.testing.assert_array_equal(np.signbit(ours[zeros]), np.signbit(wanted[zeros]))
    lost = (ours == 0) & (wanted != 0) & (stock != 0)
    assert not lost.any(), "what stock's function gives for subnormal numbers"


@pytest.mark.parametrize(
    ("dtype", "name"), [*product([DOUBLE], ONE), *product([SINGLE], ["sin", "cos", "tan", "cbrt"])]
)
def test_numbers_of_one_variable(dtype: str, name: str) -> None:
    with jax.enable_x64(dtype == DOUBLE):
        compare(*ONE[name], numbers(dtype))


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_numbers_of_two_variables(name: str, dtype: str) -> None:
    one, other = np.meshgrid(special_numbers(dtype), special_numbers(dtype))
    every = numbers(dtype)
    first = np.concatenate([one.ravel(), every, RNG.uniform(0, 50, 3000).astype(dtype)])
    second = np.concatenate([other.ravel(), RNG.permutation(every), RNG.uniform(-8, 8, 3000).astype(dtype)])
    with jax.enable_x64(dtype == DOUBLE):
        compare(*TWO[name], first, second)


QUICK: dict[str, tuple[Callable, Callable]] = {
    "exp": (jnp.exp, np.exp), "expm1": (jnp.expm1, np.expm1), "log": (jnp.log, np.log), "log1p": (jnp.log1p, np.log1p),
}  # fmt: skip
MANY = 1 << 18
"""So many elements are computed by vectors of the kernel's, if it is faster, where XLA has vectors, too."""


@pytest.mark.parametrize(("dtype", "name"), [*product([SINGLE], QUICK), (DOUBLE, "exp"), (DOUBLE, "expm1")])
def test_numbers_of_functions_that_xla_has_vectors_for(dtype: str, name: str) -> None:
    every = np.concatenate([numbers(dtype), np.linspace(-20, 20, MANY - 5000, dtype=dtype)])
    with jax.enable_x64(dtype == DOUBLE):
        compare(*QUICK[name], np.resize(every, MANY + 3))


# --- forms --------------------------------------------------------------------------------------------------


def test_every_operation_of_a_region() -> None:
    def program(x: jax.Array, y: jax.Array) -> jax.Array:
        low = jnp.maximum(jnp.floor(x), jnp.ceil(y)) + jnp.minimum(jnp.round(x), y)
        steps = jnp.sign(x) * jnp.abs(y) - lax.rsqrt(1 + x * x) / jnp.sqrt(2 + y * y) + jnp.clip(x, -1, 0.5)
        chosen = jnp.where((x > y) & ~(x < 0) | jnp.isfinite(y) ^ (x == y), low, steps)
        return jnp.sin(chosen) + jnp.expm1(x) + lax.round(y, lax.RoundingMethod.AWAY_FROM_ZERO)

    check(program, random(5003), random(5003))


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_zeros_have_signs(dtype: str) -> None:
    """The angle of a zero is 0 or pi by its sign."""
    zero = np.zeros(5000, dtype)

    def angles(a: jax.Array, b: jax.Array) -> list[jax.Array]:
        smaller, larger = jnp.minimum(a, b), jnp.maximum(a, b)
        return [jnp.arctan2(jnp.abs(a), of) for of in (smaller, larger, jnp.clip(a, 0.0, 1.0), jnp.clip(b, -1.0, 0.0))]

    with jax.enable_x64(dtype == DOUBLE):
        for a, b in ((zero, -zero), (-zero, zero), (zero, zero), (-zero, -zero)):
            assert_agree(run_both(angles, a, b))


@pytest.mark.parametrize("dims", [(4096,), (4099,), (17, 311), (3, 41, 37), (70_001,)])
def test_sizes(dims: tuple[int, ...]) -> None:
    check(lambda x: jnp.sin(x) * 2 + 1, random(*dims))


def test_operands_that_repeat_or_lie_otherwise() -> None:
    def program(x: jax.Array, row: jax.Array, column: jax.Array, number: jax.Array, turned: jax.Array) -> jax.Array:
        return jnp.sin(x * row + column[:, None]) * turned.T + number

    check(program, random(61, 97), random(97), random(61), random(), random(97, 61))


def test_masks_and_other_types() -> None:
    check(lambda x, m: jnp.where(m, jnp.sin(x), 0.5), random(50, 99), jnp.asarray(RNG.random((50, 99)) > 0.5))
    with jax.enable_x64(True):
        check(lambda x: jnp.sin(x.astype(DOUBLE)), random(5000))
        check(lambda x: jnp.power(x, x).astype(SINGLE), jnp.abs(random(5000, dtype=DOUBLE)))


def test_a_mask_that_all_elements_share() -> None:
    x, y = random(50, 99), random(50, 99)
    for flag in (True, False):
        check(lambda x, y, which: jnp.where(which, jnp.sin(x), y), x, y, jnp.asarray(flag))
        check(lambda x, which: jnp.where(which, 0.25, jnp.cos(x)), x, jnp.asarray(flag))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_in_memory(dtype: str) -> None:
    check(lambda x: jnp.sin(x.astype(SINGLE)).astype(dtype), random(64, 71, dtype=dtype))


def test_what_is_left_to_xla() -> None:
    few = run_both(lambda x: jnp.sin(x), random(4000))
    complex_ = run_both(lambda x: jnp.sin(x), jnp.asarray(random(5000) + 1j * random(5000)))
    quick = run_both(lambda x: jnp.exp(x) + jnp.tanh(x), random(5000))
    assert few.calls == complex_.calls == quick.calls == 0


def test_of_functions_that_xla_has_vectors_for_whole_loops_are_taken() -> None:
    x = random(MANY)
    check(lambda x: jnp.exp(-0.5 * (x - 0.3) ** 2), x)
    others: dict[str, Callable] = {
        "fewer": lambda x: jnp.exp(x[1:]),
        "with its sum": lambda x: jnp.exp(x).sum(),
        "more around it": lambda x: jnp.exp(sum(jnp.minimum(x, number) * number for number in range(1, 8))),
        "a quotient of polynomials": jax.nn.gelu,
    }
    for name, program in others.items():
        assert run_both(program, x).calls == 0, name


def test_a_function_among_more_operands_than_the_kernel_takes() -> None:
    """The call has the function alone; in `grow_region`'s region it would have all of them."""
    many = [random(5000) for _ in range(20)]
    check(lambda *arrays: sum(arrays[1:], jnp.sin(arrays[0])), *many)
    check(lambda *arrays: sum(map(jnp.cos, arrays)), *many, calls=20)


# --- programs -----------------------------------------------------------------------------------------------


def test_in_loops_and_branches() -> None:
    x = random(40, 128)
    check(lambda x: lax.scan(lambda c, _: (jnp.sin(c) + 0.1, c[0, 0]), x, None, length=3), x)
    check(lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.cos(c[1])), (0, x)), x)
    check(lambda x: lax.cond(x[0, 0] < 9, lambda x: jnp.tan(x * 0.1), lambda x: x, x), x)


def test_vmap_and_grad() -> None:
    x = random(8, 1024)
    check(jax.vmap(lambda row: jnp.sin(row) / (1 + row[0] ** 2)), x)
    check(jax.grad(lambda x: jnp.sum(jnp.sin(x * x))), x)


def test_a_value_that_others_read_is_a_result_of_its_own() -> None:
    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        sine = jnp.sin(x)
        return sine, jnp.cos(sine * 2) + 1

    check(program, random(64, 100), calls=2)


def test_donated_and_frozen() -> None:
    x, w = random(64, 100), random(100)
    check(lambda x, w: jnp.sin(x * w) + x, x, w, donate_argnums=(0,))
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda w, x: jnp.sin(x * w), w)
        np.testing.assert_allclose(frozen(x), np.sin(np.asarray(x, np.float64) * np.asarray(w, np.float64)), atol=1e-6)


def test_from_several_threads() -> None:
    with hlo_dispatch.enabled(policy="always"):
        compiled = jax.jit(lambda x: jnp.sin(x)).lower(random(300, 1001)).compile()
    inputs = [random(300, 1001) for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for given, found in zip(inputs, pool.map(compiled, inputs), strict=True):
            np.testing.assert_allclose(found, np.sin(np.asarray(given, np.float64)), atol=1e-6)
