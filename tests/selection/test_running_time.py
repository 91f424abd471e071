"""Running-time estimate: the right order of magnitude, and unknown where it depends on inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.explaining import optimized

X = np.ones((256, 256), "float32")


def expected(function, *arguments) -> float | None:
    return running_time(Module.from_bytes(optimized(function, *arguments)))


def test_a_product_by_its_arithmetic() -> None:
    small, large = expected(lambda x: x @ x, X), expected(lambda x: x @ x, np.ones((1024, 1024), "float32"))
    assert small is not None
    assert large is not None
    assert large > 30 * small
    # Nobody's two cores need more than 0.2 s for a thousand million multiply-adds.
    assert 1e-3 < large < 0.2


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_a_product_in_half_precision_is_no_plain_loop(half: str) -> None:
    """A transformer in bf16 would be expected to take minutes, and never be tried as a whole."""
    given = np.ones((1024, 1024), "float32")
    full = expected(lambda x: x @ x, given)
    narrow = expected(lambda x: x @ x, given.astype(jnp.dtype(half)))
    assert full is not None
    assert narrow is not None
    assert full / 2 < narrow < 0.3


@pytest.mark.parametrize("loops", [3, 300])
def test_a_loop_as_often_as_it_runs(loops: int) -> None:
    def run(x):
        return jax.lax.fori_loop(0, loops, lambda _, c: jnp.tanh(c @ x), x)

    whole, once = expected(run, X), expected(lambda x: jnp.tanh(x @ x), X)
    assert whole is not None
    assert once is not None
    assert loops / 2 < whole / once < loops * 2


def test_the_slower_branch() -> None:
    def run(x):
        return jax.lax.cond(x[0, 0] > 0, lambda c: c @ c @ c @ c, lambda c: c + 1, x)

    whole, once = expected(run, X), expected(lambda x: x @ x, X)
    assert whole is not None
    assert once is not None
    assert whole > 2 * once


@pytest.mark.parametrize("function", [jnp.linalg.cholesky, jnp.linalg.qr, jnp.linalg.eigh, jnp.linalg.svd])
def test_a_library_call_by_its_matrix(function) -> None:
    """As long on any inputs: more than a copy takes, less than a second."""
    seconds = expected(function, X)
    assert seconds is not None
    assert 1e-4 < seconds < 0.1


def called_back(x):
    return jax.pure_callback(lambda value: value, x, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c @ c, x),
        lambda x: jax.lax.fori_loop(0, x[0, 0].astype(int), lambda _, c: c @ c, x),
        called_back,
        lambda x: jax.lax.cond(x[0, 0] > 0, called_back, lambda c: c + 1, x),
    ],
    ids=["while", "trip count from the inputs", "callback", "callback in a branch"],
)
def test_what_depends_on_its_inputs(function) -> None:
    assert expected(function, X) is None


def test_the_largest_of_a_row() -> None:
    """Otherwise no program that samples would be tried as a whole."""
    found = expected(lambda x: jax.lax.top_k(x, 8), X)
    assert found is not None
    assert 0 < found < 0.1
