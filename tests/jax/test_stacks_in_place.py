"""In-place stacks: scans that take each layer's cache and give it back with changed rows, against stock XLA.

An update in the wrong buffer or at the wrong time changes numbers and raises nothing, so each program is compared on
fresh inputs, called repeatedly, with and without donation, and what was not donated must be what it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_dispatch
from hlo_dispatch.analysis.loop_nest import executions
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import shape_of
from matching import last_dumped

LAYERS, LENGTH, WIDTH, BATCH = 5, 24, 32, 2
PASS = "in-place stacks"
update = lax.dynamic_update_slice


def attend(x: Any, keys: Any, values: Any, w: Any) -> Any:
    scores = jax.nn.softmax(jnp.einsum("bd,bsd->bs", x, keys), -1)
    return jnp.tanh((x + jnp.einsum("bs,bsd->bd", scores, values)) @ w)


def put(cache: Any, rows: Any, position: Any) -> Any:
    return update(cache, rows[:, None], (0, position, 0))


def keys_and_values(w: Any, keys: Any, values: Any, x: Any, at: Any, *, reverse: bool = False) -> Any:
    def layer(x: Any, xs: Any) -> Any:
        w, k, v = xs
        k, v = put(k, x * 2, at), put(v, x + 1, at)
        return attend(x, k, v, w), (k, v)

    x, caches = lax.scan(layer, x, (w, keys, values), reverse=reverse)
    return x, *caches


def reversed_layers(*args: Any) -> Any:
    return keys_and_values(*args, reverse=True)


def old_slice_is_read(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    """Both the slice before its update and the one behind it are read."""

    def layer(x: Any, xs: Any) -> Any:
        w, k, v = xs
        x = attend(x, k, v, w)
        new = put(k, x, at)
        return attend(x, new, k, w) + k[:, 3], (new, put(v, x, at))

    x, caches = lax.scan(layer, x, (w, keys, values))
    return x, *caches


def two_updates(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    def layer(x: Any, xs: Any) -> Any:
        w, k, v = xs
        k = put(put(k, x * 2, at), x - 1, at // 2)
        return attend(x, k, v, w), (k, put(v, x, at))

    x, caches = lax.scan(layer, x, (w, keys, values))
    return x, *caches


def exchanged(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    """Each cache is given back in the place of the other one."""
    x, keys, values = keys_and_values(w, keys, values, x, at)
    return x, values, keys


def read_afterwards(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    x, new, values_ = keys_and_values(w, keys, values, x, at)
    return x @ keys[0, 0].T, new, values_


def read_before(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    x = x + keys[1, 0, :2]
    return keys_and_values(w, keys, values, x, at)


def computed_caches(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    """The caches are temporary values, of which one is read again."""
    keys = jnp.cumsum(keys, 1)
    values = jnp.cumsum(values, 1)
    x, new, values = keys_and_values(w, keys, values, x, at)
    return x @ keys[1, 0].T, new, values


def tokens_in_a_loop(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    def token(number: Any, carry: Any) -> Any:
        return keys_and_values(w, carry[1], carry[2], carry[0], number)

    return lax.fori_loop(at, at + 3, token, (x, keys, values))


def tokens_until(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    def token(carry: Any) -> Any:
        number, x, keys, values = carry
        return number + 1, *keys_and_values(w, keys, values, x, number)

    def goes_on(carry: Any) -> Any:
        return (carry[0] < at + 4) & (carry[1][0, 0] < 2) & (carry[2][0, 0, 0, 0] < 100)

    return lax.while_loop(goes_on, token, (at, x, keys, values))[1:]


def one_in_a_branch(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    return lax.cond(at > 10, keys_and_values, lambda w, k, v, x, at: (x, v, k), w, keys, values, x, at)


def nothing_else(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    """One stack is changed and the other one only read."""

    def layer(x: Any, xs: Any) -> Any:
        w, k, v = xs
        k = put(k, x * 2, at)
        return attend(x, k, v, w), k

    x, keys = lax.scan(layer, x, (w, keys, values))
    return x, keys, values


def returned_twice(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    x, keys, values = keys_and_values(w, keys, values, x, at)
    return x, keys, values, keys, values.reshape(-1)


TAKEN = [
    keys_and_values, reversed_layers, old_slice_is_read, two_updates, exchanged, read_afterwards, read_before,
    computed_caches, tokens_in_a_loop, tokens_until, one_in_a_branch, nothing_else, returned_twice,
]  # fmt: skip


def loop_over(count: int, read: Callable[[Any], Any]) -> Callable[..., Any]:
    """A loop that reads a slice of one stack and writes one of another: any slices, any number of times."""

    def run(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
        def layer(i: Any, carry: Any) -> Any:
            x, keys, new = carry
            k = put(lax.dynamic_index_in_dim(keys, read(i), 0, False), x, at)
            return attend(x, k, k, w[i]), keys, lax.dynamic_update_index_in_dim(new, k, i, 0)

        x, _, new = lax.fori_loop(0, count, layer, (x, keys, jnp.ones_like(keys)))
        return x, new, values

    return run


REFUSED = {
    "the slice before": loop_over(LAYERS, lambda i: i - 1),
    "always the first": loop_over(LAYERS, lambda i: 0 * i),
    "not all slices": loop_over(LAYERS - 1, lambda i: i),
    "a slice by data": loop_over(LAYERS, lambda i: (i * i) % LAYERS),
}


FAR = {"float32": 2e-5, "bfloat16": 6e-2}
"""How far results may be from stock's."""


def inputs(seed: int, dtype: str = "float32") -> tuple[Any, ...]:
    random = np.random.default_rng(seed)
    shapes = (LAYERS, WIDTH, WIDTH), (LAYERS, BATCH, LENGTH, WIDTH), (LAYERS, BATCH, LENGTH, WIDTH), (BATCH, WIDTH)
    arrays = [random.standard_normal(shape, dtype="float32") for shape in shapes]
    rounded = [array.astype(jnp.dtype(dtype)) for array in (arrays[0] / 8, *arrays[1:])]
    return *rounded, np.int32(random.integers(0, LENGTH + 3))


def compare(
    program: Callable[..., Any], donated: tuple[int, ...], seeds: range = range(4), dtype: str = "float32"
) -> Any:
    """Run by stock XLA and by the pass, on fresh inputs; returns the report."""
    stock, ours = jax.jit(lambda *args: program(*args)), jax.jit(lambda *args: program(*args), donate_argnums=donated)
    results = [stock(*inputs(seed, dtype)) for seed in seeds]
    with hlo_dispatch.enabled(policy="always"):
        ours(*map(jnp.asarray, inputs(99, dtype)))
        (report,) = [r for r in hlo_dispatch.reports() if r.module.startswith("jit__lambda")][-1:]
        for seed, expected in zip(seeds, results, strict=True):
            given = [jnp.array(array) for array in inputs(seed, dtype)]
            for found, wanted in zip(ours(*given), expected, strict=True):
                both = (np.asarray(array, "float32") for array in (found, wanted))
                np.testing.assert_allclose(*both, rtol=FAR[dtype], atol=FAR[dtype])
            for array, original in zip(given, inputs(seed, dtype), strict=True):
                assert array.is_deleted() or (np.asarray(array) == original).all()
    return report


def is_taken(report: Any) -> bool:
    return any(run.changed for run in report.passes if run.name == PASS)


@pytest.mark.parametrize("dtype", FAR)
@pytest.mark.parametrize("donated", [(), (1, 2)], ids=["kept", "donated"])
@pytest.mark.parametrize("program", TAKEN, ids=lambda program: program.__name__)
def test_one_stack_is_changed_in_place(program: Callable[..., Any], donated: tuple[int, ...], dtype: str) -> None:
    assert is_taken(compare(program, donated, dtype=dtype))


@pytest.mark.parametrize("dtype", FAR)
@pytest.mark.parametrize("donated", [(), (1, 2)], ids=["kept", "donated"])
@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED.keys())
def test_other_slices_stay_apart(program: Callable[..., Any], donated: tuple[int, ...], dtype: str) -> None:
    assert not is_taken(compare(program, donated, dtype=dtype))


def test_one_array_as_both_stacks() -> None:
    def program(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
        return keys_and_values(w, keys, keys, x, at)

    assert is_taken(compare(program, (1,)))


def test_a_batch_of_programs() -> None:
    def program(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
        several = jax.vmap(keys_and_values, in_axes=(None, 1, 1, 0, None), out_axes=(0, 1, 1))
        return several(w, keys[:, :, None], values[:, :, None], x[:, None], at)

    assert is_taken(compare(program, (1, 2)))


def test_from_two_threads_with_buffers_of_their_own() -> None:
    wanted = [jax.jit(keys_and_values)(*inputs(seed)) for seed in range(2)]
    failed: list[int] = []
    with hlo_dispatch.enabled(policy="always"):
        ours = jax.jit(lambda *args: keys_and_values(*args), donate_argnums=(1, 2))
        ours(*map(jnp.asarray, inputs(99)))

        def work(seed: int) -> None:
            for _ in range(20):
                got = ours(*map(jnp.array, inputs(seed)))
                if not all(np.allclose(a, b, rtol=2e-5, atol=2e-5) for a, b in zip(got, wanted[seed], strict=True)):
                    failed.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


@pytest.mark.parametrize("dtype", FAR)
@pytest.mark.parametrize(("donated", "copies"), [((1, 2), 0), ((1,), 1), ((), 2)])
def test_the_caches_are_copied_once_or_never(
    donated: tuple[int, ...], copies: int, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What of the module moves as many bytes as a slice of a cache, or more."""
    monkeypatch.setenv("HLO_DISPATCH_DUMP_PASSES", str(tmp_path))
    with hlo_dispatch.enabled(policy="always"):
        jax.jit(lambda *args: keys_and_values(*args), donate_argnums=donated).lower(*inputs(0, dtype)).compile()
    module = last_dumped(tmp_path, "jit__lambda")
    assert moved(module, jnp.dtype(dtype).itemsize) == copies


def carried(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    """Both caches are carried whole."""

    def layer(carry: Any, xs: Any) -> Any:
        x, k, v = carry
        w, number = xs
        k, v = (update(cache, rows[None, :, None], (number, 0, at, 0)) for cache, rows in ((k, x * 2), (v, x + 1)))
        return (attend(x, k[number], v[number], w), k, v), None

    return lax.scan(layer, (x, keys, values), (w, jnp.arange(len(w))))[0]


def unrolled(w: Any, keys: Any, values: Any, x: Any, at: Any) -> Any:
    """Each layer has caches of its own."""
    changed = []
    for number, (k, v) in enumerate(zip(keys, values, strict=True)):
        k, v = put(k, x * 2, at), put(v, x + 1, at)
        x = attend(x, k, v, w[number])
        changed.append((k, v))
    return x, *map(tuple, zip(*changed, strict=True))


@pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="this jaxlib forgets what is donated")
@pytest.mark.parametrize("program", [keys_and_values, carried, unrolled], ids=lambda program: program.__name__)
def test_memory_of_a_token(program: Callable[..., Any]) -> None:
    """Weights, one cache, which is the donated one, and less than two layers' parts of it."""
    layers, length = 16, 512
    part = jax.ShapeDtypeStruct((BATCH, length, WIDTH), jnp.float32)
    whole = (part,) * layers if program is unrolled else jax.ShapeDtypeStruct((layers, *part.shape), jnp.float32)
    w, x, at = (jax.ShapeDtypeStruct(shape, kind) for shape, kind in
                (((layers, WIDTH, WIDTH), jnp.float32), ((BATCH, WIDTH), jnp.float32), ((), jnp.int32)))  # fmt: skip
    with hlo_dispatch.enabled(policy="always"):
        compiled = jax.jit(lambda *args: program(*args), donate_argnums=(1, 2)).lower(w, whole, whole, x, at).compile()
    assert hlo_dispatch.reports()[-1].dispatched
    analysis = compiled.memory_analysis()
    slice_bytes = 4 * BATCH * length * WIDTH
    assert analysis.alias_size_in_bytes >= 2 * layers * slice_bytes
    assert analysis.temp_size_in_bytes < 2 * slice_bytes


def moved(module: Module, itemsize: int) -> float:
    """How often a run copies, fills or rebuilds what is as large as a slice of a cache."""
    times = executions(module)
    least = itemsize * BATCH * LENGTH * WIDTH
    return sum(
        times[computation.id]
        for computation, _ in module.control_flow_computations()
        for instruction in computation.instructions
        if instruction.opcode in ("copy", "fusion", "broadcast")
        and shape_of(instruction.shape).bytes >= least
        and not is_read_in_place(module, instruction)
    )


def is_read_in_place(module: Module, instruction: Any) -> bool:
    """A slice that a kernel or a loop fusion reads is a value of its own today."""
    if instruction.opcode != "fusion":
        return False
    inner = {i.opcode for i in module.computations[instruction.called_computation_ids[0]].instructions}
    return "dynamic-slice" in inner and "dynamic-update-slice" not in inner
