"""Buffers that XLA reuses: a kernel must never read an operand after something has written over it.

Copy insertion has run before the pass. Where the pass makes a kernel read *past* a convert, a transpose or
a copy, it lengthens the life of the buffer behind it, possibly across an in-place update. Random programs
hunt for that: buffers that are carried through loops or donated, read by products through every kind of
view, and written in place meanwhile, in every order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_dispatch
from side_by_side import assert_agree, run_both

# Every value of a random program has this shape, so that any can stand for any other.
SHAPE = (2, 8, 4, 8)
STEPS = 4

# Products of two values that are a value again; XLA transposes, copies or flattens operands for each.
PRODUCTS = (
    "bnhd,bmhd->bnhm",
    "bnhd,bdhm->bnhm",
    "bnhd,bnhm->bdhm",
    "bnhd,bmhn->bdhm",
    "bnhd,cmhd->bnhm",
    "bnhd,bmgd->bngm",
    "bnhd,bmhd->bmhn",
)
# In-place writes of (a part of) `new` into `old`; `i` is the step.
UPDATES = {
    "row": lambda old, new, i: jax.lax.dynamic_update_slice(old, new[:, :1], (0, i, 0, 0)),
    "column": lambda old, new, i: old.at[..., i].set(new[..., 0]),
    "scatter": lambda old, new, i: old.at[:, i].add(new[:, 1]),
    "one": lambda old, new, i: old.at[0, i, 0, 0].set(new[0, 0, 0, 0]),
    "whole": lambda old, new, i: new * jnp.asarray(0.9, new.dtype),
}


@dataclass(frozen=True)
class Recipe:
    """A random program's steps; numbers choose among the values there are by then."""

    steps: tuple[tuple, ...]
    carried: tuple[int, int, int]
    """Which values become the carried buffers."""
    result: int

    def run(self, buffers: tuple, noise, i) -> tuple[tuple, jax.Array]:
        """One turn: the new carried buffers, and what the turn gives out."""
        values = [*buffers, noise]

        def value(number):
            return values[number % len(values)]

        for kind, how, a, b, c in self.steps:
            if kind == "product":
                product = jnp.einsum(how, value(a), value(b), preferred_element_type=value(a).dtype)
                values.append(jnp.tanh(product / 4 + value(c)))
            elif kind == "update":
                values.append(UPDATES[how](value(a), value(b), i))
            else:
                values.append((value(a) + value(b).transpose(0, 3, 2, 1)) / 2)
        return tuple(value(number) for number in self.carried), value(self.result)


def numbers():
    # -1 is the newest value, 0 to 2 are the carried buffers, 3 is fresh noise.
    return st.integers(-4, 3)


@st.composite
def recipes(draw) -> Recipe:
    step = st.one_of(
        st.tuples(st.just("product"), st.sampled_from(PRODUCTS), numbers(), numbers(), numbers()),
        st.tuples(st.just("update"), st.sampled_from(list(UPDATES)), numbers(), numbers(), numbers()),
        st.tuples(st.just("mix"), st.just(""), numbers(), numbers(), numbers()),
    )
    products = draw(st.lists(st.sampled_from(PRODUCTS), min_size=1, max_size=2))
    steps = draw(st.lists(step, min_size=1, max_size=4))
    for how in products:
        place = draw(st.integers(0, len(steps)))
        steps.insert(place, ("product", how, draw(numbers()), draw(numbers()), draw(numbers())))
    carried = draw(st.tuples(numbers(), numbers(), numbers()))
    return Recipe(tuple(steps), carried, draw(numbers()))


def inputs(dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    shapes = (SHAPE, SHAPE, SHAPE, (STEPS, *SHAPE))
    return [(random.standard_normal(shape) / 2).astype(jnp.dtype(dtype)) for shape in shapes]


def scanned(recipe: Recipe):
    def program(a, b, c, noise):
        def body(buffers, step):
            return recipe.run(buffers, *step)

        return jax.lax.scan(body, (a, b, c), (noise, jnp.arange(STEPS)))

    return program


def while_looped(recipe: Recipe):
    """A loop whose condition reads the carried buffers too, and that holds a conditional."""

    def program(a, b, c, noise):
        def go_on(state):
            i, buffers = state
            return (i < STEPS) & jnp.isfinite(buffers[0][0, 0, 0, 0])

        def body(state):
            i, buffers = state
            new, result = recipe.run(buffers, noise[i], i)
            new = jax.lax.cond(result[0, 0, 0, 0] > 0, lambda: new, lambda: (new[1], new[0], new[2]))
            return i + 1, new

        return jax.lax.while_loop(go_on, body, (0, (a, b, c)))[1]

    return program


def donated(recipe: Recipe):
    def program(a, b, c, noise):
        return recipe.run((a, b, c), noise[0], 3)

    return program


def in_branches(recipe: Recipe):
    def program(a, b, c, noise):
        def turn(a, b, c):
            return recipe.run((a, b, c), noise[0], 2)

        def other(a, b, c):
            return (b, c, a), noise[1]

        return jax.lax.cond(noise[0, 0, 0, 0, 0] > -9, turn, other, a, b, c)

    return program


def branching_in_loop(recipe: Recipe):
    """What does not take its turn keeps its buffers."""

    def program(a, b, c, noise):
        def body(i, buffers):
            return jax.lax.cond(
                buffers[0][0, 0, 0, 0] < 0.3, lambda: recipe.run(buffers, noise[i], i)[0], lambda: buffers
            )

        return jax.lax.fori_loop(0, STEPS, body, (a, b, c))

    return program


SETTINGS = (scanned, while_looped, donated, in_branches, branching_in_loop)


@given(recipe=recipes(), setting=st.sampled_from(SETTINGS), dtype=st.sampled_from(("float32", "bfloat16")))
def test_shared_buffers(recipe, setting, dtype) -> None:
    check(recipe, setting, dtype)


def check(recipe: Recipe, setting, dtype: str) -> None:
    both = run_both(setting(recipe), *inputs(dtype), donate_argnums=(0, 1, 2))
    assert_agree(both, 1e-3 if dtype == "float32" else 0.2)


FOUND = {
    # The second product reads the buffer past its transpose, after the step has written a row of it.
    "read past a transpose": Recipe(
        (
            ("product", "bnhd,bmhd->bnhm", 0, 1, 2),
            ("update", "row", 0, -1, 0),
            ("product", "bnhd,bmhd->bnhm", 0, 1, -1),
        ),
        (-2, 1, 2),
        -1,
    ),
    # XLA updates a copy of a buffer inside the fusion that transposes it; what is left of that fusion is the
    # update alone, which XLA then performs in place, on a buffer that is still needed.
    "update left alone": Recipe(
        (("update", "row", 0, 1, 0), ("product", "bnhd,bmhd->bnhm", 0, -1, 0)),
        (0, 1, 2),
        -1,
    ),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", FOUND)
def test_shared_buffers_found_before(name, setting) -> None:
    check(FOUND[name], setting, "float32")


@pytest.mark.parametrize("size", [1, 17, 64])
@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_beside_one_that_returns_its_operand(size: int, taken: bool) -> None:
    def program(taken, w, x):
        return jax.lax.cond(taken, lambda x: jnp.tanh(x @ w), lambda x: x, x)

    random = np.random.default_rng()
    w, x = (random.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    both = run_both(program, np.asarray(taken), w, x)
    assert size == 1 or both.report.dispatched
    assert_agree(both, 1e-5)


@pytest.mark.parametrize("size", [1, 17, 64])
def test_a_branch_in_a_loop(size: int) -> None:
    def program(w, x):
        def turn(i, h):
            return jax.lax.cond(i % 2 == 0, lambda h: jnp.tanh(h @ w), lambda h: h + 1, h)

        return jax.lax.fori_loop(0, 5, turn, x)

    random = np.random.default_rng()
    w, x = (random.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    # Of a length that no turn makes larger what the one before rounded.
    assert_agree(run_both(program, (w / size**0.5).astype(np.float32), x), 1e-5)


def test_a_reader_of_xlas_that_now_reads_a_kernels_result_is_protected() -> None:
    """XLA computed the value twice: for the sort, and inside the fusion that updates it in place."""

    def program(x, w, b, new):
        value = jnp.maximum(x @ w + b, 0)
        updated = jax.lax.dynamic_update_slice(value, new, (3, 0))
        return jax.lax.sort((value, updated), num_keys=1, dimension=1)[1]

    random = np.random.default_rng(0)
    shapes = ((256, 256), (256, 256), (256,), (200, 256))
    x, w, b, new = (random.standard_normal(shape, dtype="float32") for shape in shapes)
    with hlo_dispatch.enabled(policy="always"):
        compiled = jax.jit(program).lower(x, w, b, new).compile()
    assert 'custom_call_target="hlo_dispatch.' in compiled.as_text()
    # As the kernel rounds it: ties and neighbours would be sorted otherwise.
    with hlo_dispatch.enabled(policy="always"):
        value = np.asarray(jax.jit(lambda x, w, b: jnp.maximum(x @ w + b, 0)).lower(x, w, b).compile()(x, w, b))
    updated = value.copy()
    updated[3:203] = new
    expected = np.take_along_axis(updated, np.argsort(value, axis=1, kind="stable"), 1)
    np.testing.assert_allclose(np.asarray(compiled(x, w, b, new)), expected, atol=1e-4)


@pytest.mark.parametrize(
    "changed",
    [
        lambda h, w, n: jax.lax.fori_loop(0, n, lambda _, h: jnp.tanh(h @ w), h),
        lambda h, w, n: h.at[n].set(1) @ w,
    ],
    ids=["loop", "update"],
)
def test_an_argument_that_a_view_holds_is_not_overwritten(changed: Callable[..., jax.Array]) -> None:
    """JAX donates no array that NumPy has a view of."""

    def program(h: jax.Array, w: jax.Array, n: jax.Array) -> jax.Array:
        row = changed(h, w, n)[0]
        return jax.lax.fori_loop(0, n, lambda _, z: z * 0.5 + row, jnp.ones(h.shape))

    h, w = np.full((8, 64), 0.5, np.float32), np.full((64, 64), 0.01, np.float32)
    with hlo_dispatch.enabled(policy="always"):
        given = jnp.array(h)
        view = np.asarray(given)
        jax.block_until_ready(jax.jit(program, donate_argnums=0)(given, w, np.int32(3)))
    np.testing.assert_array_equal(view, h)


@pytest.mark.parametrize(
    "changed",
    [
        lambda h, n: jax.lax.fori_loop(0, 9, lambda i, s: jax.lax.dynamic_update_slice(s, h[:1] * 1.5, (n, 0)), h),
        lambda h, n: jax.lax.dynamic_update_slice(h, jnp.sin(h[:1]), (n, 0)),
        lambda h, n: jax.lax.cond(n > 1, lambda s: s.at[n].set(1), lambda s: s.at[0].add(n), h),
    ],
    ids=["loop", "update", "branch"],
)
def test_a_product_of_a_donated_array_that_was_changed(changed: Callable[..., jax.Array]) -> None:
    """The result has the memory of the argument, and so has what the product reads."""

    def program(h: jax.Array, w: jax.Array, b: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array]:
        return w[0], changed(h, n) @ (w * 0.5) + b

    random = np.random.default_rng(0)
    h, w, b = (random.standard_normal(shape, np.float32) for shape in ((33, 47), (47, 47), (47,)))
    assert_agree(run_both(program, h, w, b, np.int32(3), donate_argnums=(0,)))

    def in_a_loop(h: jax.Array, w: jax.Array, b: jax.Array, n: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, h: jnp.tanh(program(h, w, b, n)[1]), h)

    assert_agree(run_both(in_a_loop, h, w, b, np.int32(3), donate_argnums=(0,)), 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_branch_overwrites_no_argument_that_is_not_donated(dtype: str) -> None:
    """jax 0.10 updates the bf16 array in f32, in a buffer of its own."""

    def program(x: jax.Array, row: jax.Array, z: jax.Array, at: jax.Array) -> tuple[jax.Array, ...]:
        def updated(x: jax.Array, row: jax.Array, z: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jax.lax.dynamic_update_index_in_dim(x, row, at + 3, 0), z

        others = [lambda x, row, z, _: (x, -z), lambda x, row, z, _: (-x, -z)]
        a, b = jax.lax.switch(at, [updated, *others], x, row, z, at)
        return a * 2, b + 1, row @ row

    random = np.random.default_rng()
    shapes = (8, 33, 33), (33, 33), (3, 5)
    x, row, z = (jnp.asarray(random.standard_normal(shape), dtype) for shape in shapes)
    before = np.array(x)
    with hlo_dispatch.enabled(policy="always"):
        changed, *_ = jax.jit(program)(x, row, z, np.int32(0))
    np.testing.assert_array_equal(np.asarray(x), before)
    before[3] = np.asarray(row)
    np.testing.assert_array_equal(np.asarray(changed), before * 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_update_in_a_fusion_overwrites_no_argument(dtype: str) -> None:
    """XLA updates a copy inside of its fusions; a product reads the updated array, and so does another one."""

    def program(cache: jax.Array, row: jax.Array, w: jax.Array, at: jax.Array) -> jax.Array:
        keys = jax.lax.dynamic_update_slice(cache[0], row @ w, (at, 0))
        return jax.nn.softmax(row @ keys.T, -1) @ keys

    random = np.random.default_rng()
    cache, row, w = (jnp.asarray(random.standard_normal(shape), dtype) for shape in ((1, 32, 8), (1, 8), (8, 8)))
    before = np.array(cache)
    with hlo_dispatch.enabled(policy="always"):
        jax.block_until_ready(jax.jit(program)(cache, row, w, np.int32(2)))
    np.testing.assert_array_equal(np.asarray(cache), before)


SINGLE_ARRAYS: dict[str, Callable[[jax.Array, np.ndarray], jax.Array]] = {
    "product": lambda s, w: s @ w,
    "activation": lambda s, w: jax.nn.relu(s @ w),
    "residual": lambda s, w: s @ w + s * 0.1,
    "two": lambda s, w: s @ w @ w,
    "softmax": lambda s, _: jax.nn.softmax(s, -1) + s,
    "largest": lambda s, _: jax.lax.cummax(s, axis=1),
}


@pytest.mark.parametrize("size", [33, 96])
@pytest.mark.parametrize("name", SINGLE_ARRAYS)
def test_a_loop_that_carries_a_single_array(name: str, size: int) -> None:
    """XLA gives it no tuple: the body's parameter and its result are the same buffer as a whole."""
    rng = np.random.default_rng()
    weights = (rng.standard_normal((size, size)) / np.sqrt(size)).astype(np.float32)
    weights[:, 0], bias = 0, np.zeros(size, np.float32)
    weights[0, 0], bias[0] = 1, 30  # the first number counts the iterations
    x = rng.standard_normal((size, size)).astype(np.float32)
    x[0] = 0

    def program(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda s: s[0, 0] < 200, lambda s: SINGLE_ARRAYS[name](s, weights) + bias, x)

    both = run_both(program, x)
    assert both.calls
    assert_agree(both)
