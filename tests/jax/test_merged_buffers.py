"""One value that XLA computes into two buffers stays in two, where a result, a loop or a branch keeps them.

Were it one, the process would end (two results in one buffer), or a loop would change both parts of its state at once.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from side_by_side import assert_agree, run_both

SHAPE = (33, 47)
FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "softmax": jax.nn.softmax,
    "product": lambda x: jax.nn.relu(x @ jnp.full((SHAPE[1], SHAPE[1]), 0.02) + 0.1),
    "cumulative": lambda x: jnp.cumsum(x, 1) * 2,
}


def twice(s: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two shapes of a value: XLA fuses what computes it with each."""
    return s, s.reshape(-1)


def state_of_loop(s: jax.Array, n: jax.Array) -> tuple[jax.Array, ...]:
    def body(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return state[0] + 1, state[1] * 0.5, state[2] + 3

    return lax.while_loop(lambda state: state[0] < n, body, (jnp.int32(0), *twice(s)))


def loops(s: jax.Array, n: jax.Array) -> tuple[jax.Array, ...]:
    one = lax.fori_loop(0, n, lambda _, a: a * 0.5, s)
    other = lax.fori_loop(0, n, lambda _, a: a + 3, s.reshape(-1))
    return one, other, s + 1


def updated(s: jax.Array, n: jax.Array) -> tuple[jax.Array, ...]:
    return s, s.reshape(-1).at[n].set(9.0), s.at[n].add(1.0)


PROGRAMS: dict[str, Callable[[jax.Array, jax.Array], object]] = {
    "results": lambda s, _: (*twice(s), s[None]),
    "state of a loop": state_of_loop,
    "two loops": loops,
    "a loop and a result": lambda s, n: (lax.fori_loop(0, n, lambda _, a: a * 0.5, s.reshape(-1)), s),
    "a branch and a result": lambda s, n: (lax.cond(n > 1, lambda a: a * 0.5, lambda a: a, s.reshape(-1)), s),
    "operands of a branch": lambda s, n: lax.cond(n > 1, lambda a, b: (a * 0.5, b + 3), lambda a, b: (a, b), *twice(s)),
    "updates": updated,
}


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng().standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_kept_twice(function: str, program: str, x: np.ndarray) -> None:
    both = run_both(lambda x, n: PROGRAMS[program](FUNCTIONS[function](x), n), x, np.int32(2))
    assert_agree(both)


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_results_of_a_loop_body(trips: int, x: np.ndarray) -> None:
    """The values that the loop begins with are two."""

    def program(x: jax.Array, y: jax.Array, n: jax.Array) -> tuple[jax.Array, ...]:
        def body(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            return state[0] + 1, *twice(jax.nn.softmax(state[1]))

        _, a, b = lax.while_loop(lambda state: state[0] < n, body, (jnp.int32(0), x, y))
        return a * 2, b * 3

    assert_agree(run_both(program, x, 2 * x.reshape(-1) + 5, np.int32(trips)))


@pytest.mark.parametrize("is_taken", [False, True])
def test_results_of_a_branch(is_taken: bool, x: np.ndarray) -> None:
    def program(x: jax.Array, y: jax.Array, p: jax.Array) -> tuple[jax.Array, ...]:
        a, b = lax.cond(p, lambda x, _: twice(jax.nn.softmax(x + 1)), lambda x, y: (x, y), x, y)
        return a * 2, b * 3

    assert_agree(run_both(program, x, 2 * x.reshape(-1) + 5, np.bool_(is_taken)))


def accumulated(x: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two accumulators of one product, which are moved behind the loop together."""

    def step(sums: tuple[jax.Array, jax.Array], at: tuple[jax.Array, jax.Array]) -> tuple[tuple[jax.Array, ...], None]:
        product = at[0].T @ at[1]
        return (sums[0] + product, sums[1] + product.reshape(-1)), None

    size = x.shape[-1], g.shape[-1]
    sums, _ = lax.scan(step, (jnp.zeros(size), jnp.zeros(size[0] * size[1])), (x, g))
    return sums


@pytest.mark.parametrize(
    "program",
    [
        lambda a, b: (a, b),
        lambda a, b: lax.fori_loop(0, 2, lambda i, s: (s[0] * 0.5, s[1].at[i].set(9)), (a, b)),
        lambda a, b: (a, b.at[3].set(9), a.at[2].set(1)),
    ],
    ids=["results", "state of a loop", "updates"],
)
def test_equal_accumulators(program: Callable[[jax.Array, jax.Array], object], x: np.ndarray) -> None:
    xs, g = np.stack([x] * 12), np.stack([x[:, ::-1] / 33] * 12)
    assert_agree(run_both(lambda x, g: program(*accumulated(x, g)), xs, g))
