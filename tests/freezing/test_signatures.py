"""Several signatures of a frozen function: compiled before weights are taken, with one set of prepared weights."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import monitoring
from stages import split_small_weights

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch import FreezeError
from hlo_dispatch.process.machine import this_machine
from warm import run_python

COMPILED: list[str] = []
"""One for each program that XLA has compiled."""
monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: COMPILED.append(event) if event.endswith("backend_compile_duration") else None
)
LAYERS = 4
ROWS = (1, 4, 7)


@pytest.fixture(params=["one stage", "stages"])
def _stages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "stages":
        split_small_weights(monkeypatch)


def network(p: Any, x: Any) -> Any:
    """Each layer's weights are prepared alike; one signature alone reads the scale."""
    for layer in p["layers"]:
        x = jnp.tanh(x @ jnp.cumsum(layer["w"], axis=0)) + layer["b"]
    return x if x.shape[0] > 1 else x * jnp.cumsum(p["scale"])


def weights(seed: int = 0, of: Any = jnp.asarray) -> dict[str, Any]:
    random = np.random.default_rng(seed)

    def array(*shape: int) -> Any:
        return of(random.standard_normal(shape, dtype="float32") / 8)

    return {"layers": [{"w": array(64, 64), "b": array(64)} for _ in range(LAYERS)], "scale": array(64)}


def example(rows: int, of: Any = jax.ShapeDtypeStruct) -> Any:
    return of((rows, 64), jnp.float32)


def argument(rows: int) -> Any:
    return jax.random.normal(jax.random.key(rows), (rows, 64))


def check(fast: Any, seed: int = 0, rows: tuple[int, ...] = ROWS) -> None:
    for count in rows:
        wanted = jax.jit(network)(weights(seed), argument(count))
        np.testing.assert_allclose(fast(argument(count)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("of", [jax.ShapeDtypeStruct, jnp.ones, np.ones])
def test_a_call_finds_what_was_compiled(of: Any) -> None:
    fast = hlo_dispatch.freeze(network, weights())
    for rows in ROWS:
        fast.compile(example(rows, of))
    assert fast.nbytes == 0
    assert "the first call" in str(fast.report)
    fast(argument(4))
    assert len(fast.report.programs) == len(ROWS)
    arguments = [argument(rows) for rows in ROWS]
    COMPILED.clear()
    for x in arguments:
        fast(x)
    assert not COMPILED
    check(fast)


@pytest.mark.usefixtures("_stages")
def test_all_are_compiled_before_weights_are_taken() -> None:
    p = weights()
    fast = hlo_dispatch.freeze(network, p, donate=True)
    for rows in ROWS:
        fast.compile(example(rows))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(p))
    fast(argument(4))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(p))
    check(fast)
    new = weights(1)
    fast.update(new)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(new))
    check(fast, 1)


@pytest.mark.usefixtures("_stages")
@pytest.mark.parametrize("donate", [True, False])
def test_a_list_of_signatures(donate: bool) -> None:
    p = weights()
    fast = hlo_dispatch.freeze(network, p, donate=donate, signatures=[(example(rows),) for rows in ROWS])
    assert all(leaf.is_deleted() == donate for leaf in jax.tree.leaves(p))
    del p
    assert len(fast.report.programs) == len(ROWS)
    check(fast)
    fast.update(weights(2))
    check(fast, 2)
    with pytest.raises(FreezeError, match=r"as in \[\(x,\), \(y,\)\]"):
        hlo_dispatch.freeze(network, weights(), signatures=[example(1)])


@pytest.mark.usefixtures("_stages")
def test_equal_values_are_computed_and_held_once() -> None:
    fast = hlo_dispatch.freeze(network, weights(), keep=True)
    fast(argument(4))
    held = fast.nbytes
    assert held == LAYERS * (64 * 64 + 64) * 4
    fast(argument(7))
    assert fast.nbytes == held
    # One row reads one value more.
    fast(argument(1))
    assert fast.nbytes == held + 64 * 4
    programs = list(fast._programs.values())
    steps = [[key for step in program.preprocessing.steps for key in step.keys] for program in programs]
    assert list(map(len, steps)) == [LAYERS, 0, 1]
    check(fast)
    fast.update(weights(1))
    assert fast.nbytes == held + 64 * 4
    check(fast, 1)


@pytest.mark.parametrize("narrowed", [None, "bf16"])
def test_prompts_and_tokens_share_prepacked_weights(narrowed: str | None) -> None:
    p = {"w": jax.random.normal(jax.random.key(0), (256, 320)) / 16}
    frozen = hlo_dispatch.freeze(lambda p, x: jnp.tanh(x @ p["w"]), p, keep=True, weights=narrowed)
    held = {}
    with hlo_dispatch.enabled(policy="always"):
        for rows in (64, 96, 1):
            x = jax.random.normal(jax.random.key(rows), (rows, 256))
            exact = np.tanh(np.float64(x) @ np.float64(p["w"]))
            np.testing.assert_allclose(frozen(x), exact, atol=1e-5 if narrowed is None else 3e-2)
            held[rows] = frozen.nbytes
    assert "prepacked" in str(frozen.report)
    assert held[96] == held[64]
    if narrowed is not None and this_machine().has_bf16_arithmetic:
        assert held[1] == held[64]


@pytest.mark.parametrize("narrowed", ["int8", "int4"])
def test_prompts_and_tokens_share_integers(narrowed: str) -> None:
    """XLA writes the scales of the layers with a dimension of one element more in one program than in the other."""
    keys = jax.random.split(jax.random.key(0), 4)
    p = [{name: jax.random.normal(key, (256, 256)) / 16 for name in "ab"} for key in keys]

    def layers(p: Any, x: Any) -> Any:
        for layer in p:
            x = x + jax.nn.silu(x @ layer["a"]) * (x @ layer["b"])
        return x

    frozen = hlo_dispatch.freeze(layers, p, keep=True, weights=narrowed)
    held: list[int] = []
    with hlo_dispatch.enabled(policy="always"):
        for rows in (64, 1):
            frozen(jax.random.normal(jax.random.key(rows), (1, rows, 256)))
            held.append(frozen.nbytes)
    assert held[1] <= 1.05 * held[0]


def test_equal_layers_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    split_small_weights(monkeypatch)
    fast = hlo_dispatch.freeze(network, weights())
    COMPILED.clear()
    fast.compile(example(4))
    assert len(COMPILED) == 3, "the module is shown, one layer's stage and the program are compiled"
    (program,) = fast._programs.values()
    assert len(program.preprocessing.steps) == LAYERS


@pytest.mark.usefixtures("_stages")
def test_values_of_different_sources_are_different() -> None:
    """Two signatures prepare other weights in the same way."""

    def other(p: Any, x: Any) -> Any:
        return x @ jnp.cumsum(p[0] if x.shape[0] == 1 else p[1], axis=0)

    p = [jnp.ones((64, 64)), jnp.full((64, 64), 2.0)]
    fast = hlo_dispatch.freeze(other, p, keep=True)
    for rows in (1, 4):
        np.testing.assert_allclose(fast(argument(rows)), jax.jit(other)(p, argument(rows)), rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("_stages")
@pytest.mark.parametrize("form", ["bf16", "int8", "int4"])
def test_narrowed_weights_are_held_once(form: str) -> None:
    fast = hlo_dispatch.freeze(lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"], two_layers(), keep=True, weights=form)
    fast(argument(4))
    held = fast.nbytes
    fast(argument(1))
    assert fast.nbytes == held
    first, second = (set(program.preprocessing.keys) for program in fast._programs.values())
    assert first == second


def two_layers() -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {name: jnp.asarray(random.standard_normal((64, 64), dtype="float32")) for name in "wv"}


def test_a_compilation_that_fails_leaves_the_weights() -> None:
    def picky(p: Any, x: Any) -> Any:
        if x.shape[0] == 7:
            raise ZeroDivisionError("seven rows")
        return network(p, x)

    p = weights()
    with pytest.raises(ZeroDivisionError, match="seven rows"):
        hlo_dispatch.freeze(picky, p, donate=True, signatures=[(example(4),), (example(7),)])
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(p))
    fast = hlo_dispatch.freeze(picky, p, donate=True, signatures=[(example(4),), (example(1),)])
    check(fast, rows=(4, 1))


def test_new_weights_before_the_first_call() -> None:
    fast = hlo_dispatch.freeze(network, weights())
    fast.compile(example(4))
    fast.update(weights(1))
    check(fast, 1, rows=(4,))


def test_arguments_that_are_no_arrays() -> None:
    fast = hlo_dispatch.freeze(lambda w, x, *, factor: w * x["x"] * factor, jnp.ones(3))
    fast.compile({"x": jax.ShapeDtypeStruct((), jnp.float32, weak_type=True)}, factor=2)
    fast({"x": jnp.asarray(1.0)}, factor=2)
    COMPILED.clear()
    np.testing.assert_allclose(fast({"x": jnp.asarray(3.0)}, factor=4), 12.0)
    assert not COMPILED
    with pytest.raises(FreezeError, match="cannot be compiled inside of"):
        jax.jit(lambda x: fast.compile({"x": x}, factor=2))(1.0)


@pytest.mark.usefixtures("_stages")
def test_what_was_compiled_is_saved(tmp_path: Path) -> None:
    fast = hlo_dispatch.freeze(network, weights())
    for rows in ROWS:
        fast.compile(example(rows))
    fast.save(tmp_path / "network")
    loaded = hlo_dispatch.load(tmp_path / "network")
    assert loaded.nbytes == fast.nbytes == LAYERS * (64 * 64 + 64) * 4 + 64 * 4
    check(loaded)


def test_threads() -> None:
    fast = hlo_dispatch.freeze(network, weights(), donate=True, signatures=[(example(rows),) for rows in ROWS])
    problems: list[BaseException] = []

    def call(rows: int) -> None:
        try:
            for _ in range(10):
                check(fast, rows=(rows,))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=call, args=(rows,)) for rows in ROWS * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_a_cache_is_donated_in_every_signature() -> None:
    def step(p: Any, cache: Any, x: Any) -> Any:
        return x @ jnp.cumsum(p, axis=0) + cache[0], jax.lax.dynamic_update_slice(cache, x, (2, 0))

    p = jnp.ones((64, 64)) / 64
    cache = jax.ShapeDtypeStruct((16, 64), jnp.float32)
    fast = hlo_dispatch.freeze(
        jax.jit(step, donate_argnums=1), p, donate=True, signatures=[(cache, example(4)), (cache, example(1))]
    )
    given = jnp.zeros((16, 64))
    for rows in (4, 1, 1):
        wanted = step(jnp.ones((64, 64)) / 64, jnp.array(given), argument(rows))
        y, changed = fast(given, argument(rows))
        for one, other in zip((y, changed), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        given = changed


def test_a_loop_does_not_change_what_is_held() -> None:
    """It begins with preprocessed values, which it would otherwise change where they are."""

    def rounds(w: Any, x: Any) -> Any:
        start = jnp.cumsum(w), jnp.cumsum(w) * 2, x
        return jax.lax.fori_loop(0, 5, lambda i, s: (s[1] + i, s[0] * 0.5, s[2] + s[0] - s[1]), start)

    w, x = jnp.arange(64.0), jnp.ones(64)
    wanted = jax.jit(rounds)(w, x)
    fast = hlo_dispatch.freeze(rounds, w)
    for _ in range(3):
        jax.tree.map(lambda got, value: np.testing.assert_allclose(got, value, rtol=1e-5), fast(x), wanted)


def test_loops_of_random_numbers() -> None:
    def draw(key: Any, other: Any) -> Any:
        return jax.random.normal(key, (3,)) + jax.random.normal(other, (3,))

    key, other = jax.random.key(1), jax.random.key(2)
    fast = hlo_dispatch.freeze(draw, key)
    for _ in range(3):
        np.testing.assert_allclose(fast(other), draw(key, other), rtol=1e-6)


PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np, hlo_dispatch
from hlo_dispatch.bench.models.process import status
from hlo_dispatch.process.retained_memory import return_free_memory
hlo_dispatch.install(policy="never")
LAYERS, WIDTH = 16, 1536
folder, way, form = sys.argv[1:]
path = f"{folder}/weights"
if way == "write":
    random = np.random.default_rng(0)
    with open(path, "wb") as file:
        for _ in range(LAYERS):
            file.write(random.standard_normal((WIDTH, WIDTH), dtype="float32"))
    sys.exit()
def network(weights, x):
    for w in weights:
        x = jnp.tanh(x @ (w if form != "cumsum" else jnp.cumsum(w, axis=0)))
    return x
size = 4 * WIDTH * WIDTH
file = np.memmap(path, np.float32, "r", shape=(LAYERS, WIDTH, WIDTH))
weights = None if form == "cumsum" else form
fast = hlo_dispatch.freeze(network, list(file), weights=weights)
for rows in (4,) if way == "one" else (4, 1):
    fast.compile(jax.ShapeDtypeStruct((rows, WIDTH), jnp.float32))
# What compiling and a call take is no matter of the weights.
return_free_memory()
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
fast._preprocess()
peak = status("VmHWM") - before
held = len({id(array) for program in fast._programs.values() for array in program.arrays})
after = status("VmRSS") - before
print(json.dumps({"peak": peak, "after": after, "held": held, "bytes": fast.nbytes, "largest": size}))
"""


@pytest.mark.parametrize("form", ["cumsum", "bf16", "int8"])
def test_memory_of_weights_in_a_mapped_file(tmp_path: Path, form: str) -> None:
    environment = clean_environment(HLO_DISPATCH_STRICT="1")
    found = {}
    for way in ("write", "one", "two"):
        done = run_python(PROGRAM, tmp_path, way, form, environment=environment)
        assert done.returncode == 0, done.stderr
        found[way] = json.loads(done.stdout) if done.stdout else {}
    for way in ("one", "two"):
        assert found[way]["peak"] < 1.3 * found[way]["bytes"] + found[way]["largest"]
    assert (found["one"]["held"], found["one"]["bytes"]) == (found["two"]["held"], found["two"]["bytes"])
    assert found["two"]["after"] - found["one"]["after"] < found["one"]["bytes"] // 4


def test_changes_in_a_private_mapping_stay(tmp_path: Path) -> None:
    np.ones((64, 64), "float32").tofile(tmp_path / "weights")
    mapped = np.memmap(tmp_path / "weights", np.float32, "c", shape=(64, 64))
    mapped[0] = 2.0
    fast = hlo_dispatch.freeze(lambda w, x: x @ jnp.cumsum(w, axis=0), mapped)
    wanted = argument(4) @ np.cumsum(mapped, axis=0)
    np.testing.assert_allclose(fast(argument(4)), wanted, rtol=1e-4, atol=1e-3)
    assert (mapped[0] == 2.0).all()
    assert (mapped[1:] == 1.0).all()


@pytest.mark.usefixtures("_stages")
@pytest.mark.parametrize("offset", [0, 4, 64])
def test_views_of_mapped_files(tmp_path: Path, offset: int) -> None:
    """Aligned or not, contiguous or not, as a file's format has it."""
    random = np.random.default_rng(0)
    numbers = random.standard_normal((3, 64, 64), dtype="float32")
    (tmp_path / "weights").write_bytes(bytes(offset) + numbers.tobytes())
    mapped = np.memmap(tmp_path / "weights", np.float32, "r", offset=offset, shape=(3, 64, 64))
    p = {
        "layers": [{"w": mapped[0], "b": mapped[2, 0]}, {"w": mapped[1].T, "b": mapped[2, :, 1]}],
        "scale": mapped[2, 5],
    }
    fast = hlo_dispatch.freeze(network, p, signatures=[(example(4),), (example(1),)])
    wanted = [jax.jit(network)(jax.tree.map(np.array, p), argument(rows)) for rows in (4, 1)]
    (tmp_path / "weights").write_bytes(bytes(offset + numbers.nbytes))
    for rows, values in zip((4, 1), wanted, strict=True):
        np.testing.assert_allclose(fast(argument(rows)), values, rtol=1e-4, atol=1e-5)
