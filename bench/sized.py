"""Synthetic programs of any size, each of one kind of instruction, for compile times."""

# pyright: basic, reportArgumentType=false
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BenchProgram = tuple[Callable[..., Any], tuple[Any, ...]]


def _array(*sizes: int) -> Any:
    return np.random.default_rng(0).standard_normal(sizes, "float32") * 0.1


def _elementwise(units: int) -> BenchProgram:
    """Loops over one array, with a sum after some of them, which parts XLA's fusions."""

    def function(x: Any, w: Any) -> Any:
        y = x @ w
        for number in range(units):
            y = jnp.sin(y) * x + y
            if number % 8 == 7:
                y = y - y.sum(-1, keepdims=True)
        return y @ w

    return function, (_array(32, 64), _array(64, 64))


def _updates(units: int) -> BenchProgram:
    """One array updated in place again and again, read in between, and a system of equations solved with it."""

    def function(x: Any, a: Any) -> Any:
        for number in range(units):
            row = number % 30 + 2
            x = x.at[:, row].set(jnp.sin(x[:, row - 1]) + x[:, row - 2])
        return jnp.linalg.solve(a, x), x

    return function, (_array(32, 32, 32), _array(32, 32, 32) + np.eye(32, dtype="float32"))


def _rotations(units: int) -> BenchProgram:
    """A chain of matrices whose elements are set one by one, for several positions at once, and one solve."""

    def rotation(angle: Any) -> Any:
        c, s = jnp.cos(angle), jnp.sin(angle)
        return jnp.eye(4).at[0, 0].set(c).at[1, 1].set(c).at[0, 1].set(-s).at[1, 0].set(s).at[0, 3].set(0.1)

    def function(q: Any) -> Any:
        t, found = jnp.eye(4), []
        for number in range(units):
            t = t @ rotation(q[number])
            found.append(t[:3, 3])
        m = jnp.stack(found)
        first = jnp.resize(m, (32, 3))
        return m, jnp.linalg.solve(first @ first.T + jnp.eye(32), jnp.resize(q, 32))

    return jax.vmap(function), (_array(32, units),)


def _caches(units: int) -> BenchProgram:
    """An array that products read between its updates in place: some updates depend on them, some need not wait."""

    def function(h: Any, cache: Any) -> Any:
        total = h
        for number in range(units):
            total = total + jnp.sin(h @ cache)
            cache = cache.at[number % 64].set(jnp.tanh(h[number % 32]))
            h = jnp.tanh(h @ cache)
        return total, cache

    return function, (_array(32, 64), _array(64, 64))


def _dots(units: int) -> BenchProgram:
    """Layers of a network, each with weights of its own."""

    def function(x: Any, layers: Any) -> Any:
        for w, b in layers:
            x = jax.nn.gelu(x @ w + b)
        return x

    return function, (_array(32, 64), [(_array(64, 64), _array(64)) for _ in range(units)])


def _encoder(units: int) -> BenchProgram:
    """Layers of attention and a normalization, which the table's patterns are looked for in."""

    def function(x: Any, w: Any) -> Any:
        for _ in range(units):
            q = x @ w
            scores = jax.nn.softmax(q @ jnp.swapaxes(x, 1, 2) / 8.0)
            x = x + scores @ q
            x = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        return x

    return function, (_array(4, 32, 64), _array(64, 64))


def _body(units: int) -> BenchProgram:
    """One loop with a long body, which updates a part of its state in place."""

    def function(x: Any, w: Any, kept: Any) -> Any:
        def body(step: Any, state: Any) -> Any:
            x, kept = state
            for number in range(units):
                x = jnp.tanh(x @ w + x)
                if number % 4 == 0:
                    kept = kept.at[step, number % 8].set(x[0])
            return x, kept

        return lax.fori_loop(0, 4, body, (x, kept))

    return function, (_array(32, 64), _array(64, 64), _array(4, 8, 64))


def _state(units: int) -> BenchProgram:
    """One loop whose state has many parts, each updated by a product with itself, as an optimizer's weights are."""

    def function(x: Any, weights: Any) -> Any:
        def body(_: Any, weights: Any) -> Any:
            return [w - 0.1 * jnp.tanh(x @ w) for w in weights]

        return lax.fori_loop(0, 4, body, weights)

    return function, (_array(64, 64), [_array(64, 64) for _ in range(units)])


def _loops(units: int) -> BenchProgram:
    """Many small loops, one after the other, over the same weights."""

    def function(x: Any, w: Any) -> Any:
        for _ in range(units):
            x, seen = lax.scan(lambda h, v: (jnp.tanh(h @ w + v), h.sum(-1)), x, jnp.ones((3, 64)))
            x = x + seen[0][:, None]
        return x

    return function, (_array(32, 64), _array(64, 64))


def _branches(units: int) -> BenchProgram:
    """Many choices between a product and none."""

    def function(x: Any, w: Any, which: Any) -> Any:
        for number in range(units):
            x = lax.cond(which[number], lambda x: jnp.tanh(x @ w), lambda x: x + 1.0, x)
        return x

    return function, (_array(32, 64), _array(64, 64), np.arange(units) % 3 == 0)


KINDS: dict[str, tuple[Callable[[int], BenchProgram], float]] = {
    "elementwise": (_elementwise, 4),
    "updates": (_updates, 14),
    "rotations": (_rotations, 60),
    "caches": (_caches, 20),
    "dots": (_dots, 20),
    "encoder": (_encoder, 60),
    "body": (_body, 9),
    "state": (_state, 12),
    "loops": (_loops, 45),
    "branches": (_branches, 25),
}
"""Kind → what makes a program of so many units, and about how many instructions XLA makes of one unit."""


def sized(kind: str, instructions: int) -> BenchProgram:
    """A function and its arguments, of which XLA makes about so many instructions."""
    make, each = KINDS[kind]
    return make(max(1, round(instructions / each)))
