"""A frozen program is compiled before a weight is deleted; what does not compile is stock's."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
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
from hlo_dispatch.freezing import placeholder_executable
from hlo_dispatch.freezing.placeholder_executable import PlaceholderExecutable
from hlo_dispatch.pipeline import Pipeline
from warm import run_python

X = jnp.ones((4, 64))
COMPILED: list[str] = []
"""One for each program that XLA has compiled."""
monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: COMPILED.append(event) if event.endswith("backend_compile_duration") else None
)


def network(p: Any, x: Any) -> Any:
    """Both weights are prepared, and the bias is read as it is."""
    return jnp.tanh(x @ jnp.cumsum(p["w"], axis=0)) @ jnp.cumsum(p["v"], axis=1) + p["b"]


def weights(of: Callable[[Any], Any] = jnp.asarray) -> dict[str, Any]:
    random = np.random.default_rng(0)
    made = {name: random.standard_normal((64, 64), dtype="float32") / 64 for name in "wv"}
    return jax.tree.map(of, made | {"b": random.standard_normal(64, dtype="float32")})


def check(got: Any) -> None:
    np.testing.assert_allclose(got, jax.jit(network)(weights(), X), rtol=1e-4, atol=1e-5)


@pytest.fixture
def _survivable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLO_DISPATCH_STRICT")
    split_small_weights(monkeypatch)


def broken(which: str, split: Callable[..., Any], made: list[bytes]) -> Callable[..., Any]:
    """`split` with a module that XLA does not compile, added to `made`: it calls what nobody has registered."""

    def breaking(*args: Any, **kwargs: Any) -> Any:
        halves = split(*args, **kwargs)
        module = getattr(halves, which)
        root = next(i for i in module.entry.instructions if i.id == module.entry.root_id)
        result = module.entry.instructions.add(opcode="custom-call", name="broken", id=root.id + 1)
        result.custom_call_target, result.custom_call_api_version = "nobody_has_registered_this", 4
        result.shape.CopyFrom(root.shape)
        module.entry.root_id = result.id
        made.append(module.to_bytes())
        return halves

    return breaking


@pytest.mark.usefixtures("_survivable")
@pytest.mark.parametrize("which", ["program", "prologue"])
@pytest.mark.parametrize("donate", [True, False])
def test_what_does_not_compile_is_stocks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, which: str, donate: bool
) -> None:
    made: list[bytes] = []
    monkeypatch.setattr(Pipeline, "freeze", broken(which, Pipeline.freeze, made))
    before = hlo_dispatch.statistics()
    with caplog.at_level(logging.WARNING, "hlo_dispatch"):
        p = weights()
        fast = hlo_dispatch.freeze(network, p, donate=donate)
        check(fast(X))
        check(fast(X))
    after = hlo_dispatch.statistics()
    assert made, "the module that does not compile was built"
    assert (after.failures, after.modules, after.rewritten) == (
        before.failures + 1,
        before.modules + 1,
        before.rewritten,
    )
    (program,) = fast.report.programs
    assert (len(program.prepared), len(program.kept)) == (0, 3)
    assert all(leaf.is_deleted() == donate for leaf in jax.tree.leaves(p))


def test_nothing_is_lost_where_nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no compiler")

    split_small_weights(monkeypatch)
    p = weights()
    fast = hlo_dispatch.freeze(network, p, donate=True)
    with monkeypatch.context() as context:
        context.setattr(placeholder_executable, "substituting_module", fail)
        with pytest.raises(ZeroDivisionError, match="no compiler"):
            fast(X)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(p))
    check(fast(X))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(p))
    new = weights()
    with monkeypatch.context() as context:
        context.setattr(PlaceholderExecutable, "compile", fail)
        with pytest.raises(ZeroDivisionError, match="no compiler"):
            fast.update(new)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(new))
    check(fast(X))
    fast.update(new)
    check(fast(X))


def test_a_call_that_fails_loses_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = hlo_dispatch.freeze(network, weights(), donate=True)
    run = PlaceholderExecutable.compile_and_run

    def fail(self: PlaceholderExecutable, arrays: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            raise FloatingPointError("a NaN")
        return run(self, arrays)

    with monkeypatch.context() as context:
        context.setattr(PlaceholderExecutable, "compile_and_run", fail)
        with pytest.raises(FloatingPointError, match="a NaN"):
            fast(X)
    check(fast(X))


def on_a_device(array: Any) -> Any:
    return jax.device_put(array, jax.devices()[0])


@pytest.mark.parametrize("of", [np.asarray, jnp.asarray, on_a_device], ids=["NumPy's", "JAX's", "committed"])
@pytest.mark.parametrize("wide", [False, True])
def test_each_half_is_compiled_once(of: Callable[[Any], Any], wide: bool) -> None:
    def sorted_out(p: Any, x: Any) -> Any:
        return network(p, x)[:, jnp.argsort(p["b"])]

    with jax.enable_x64(wide):
        p, x = weights(of), np.asarray(X)
        wanted = np.asarray(jax.jit(sorted_out)(p, x))
        fast = hlo_dispatch.freeze(sorted_out, p)
        COMPILED.clear()
        np.testing.assert_allclose(fast(x), wanted, rtol=1e-4, atol=1e-5)
        (program,) = fast._programs.values()
        stages = {step.stage.digest for step in program.preprocessing.steps}
        assert len(COMPILED) - 1 == len(stages) + 1, "the first of them only shows its module"
        COMPILED.clear()
        fast(x)
        fast.update(weights(of))
        fast(x)
    assert not COMPILED


UNDER_MALLOC_CHECK = """
import jax, jax.numpy as jnp, numpy as np, hlo_dispatch
hlo_dispatch.install(policy="always")
random = np.random.default_rng(0)
array = lambda *shape: jnp.asarray(random.uniform(-0.5, 0.5, shape), jnp.float32)
layers = [(array(1, 1, 16, 16), array(16), array(16)) for _ in range(3)]
p = (layers, array(16, 4096))

def step(p, caches, x):
    for (w, s, b) in p[0]:
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x * s + b)
    row = x.mean((1, 2)) @ p[1]
    return row.sum(), [cache + row[0, n] for n, cache in enumerate(caches)]

caches = lambda: [jnp.zeros((3, 11 + n)) for n in range(4)]
with hlo_dispatch.enabled(policy="never"):
    wanted = jax.jit(step)(p, caches(), jnp.ones((1, 7, 5, 16)))
fast = hlo_dispatch.freeze(jax.jit(step, donate_argnums=1), p)
for _ in range(20):
    got = fast(caches(), jnp.ones((1, 7, 5, 16)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), got, wanted)
assert any("small values" in value.origin for value in fast.report.programs[0].prepared), fast.report
print("sound")
"""


def test_the_heap_is_sound() -> None:
    """The C library checks it at each release of memory, and ends the process where it is not."""
    library = next((path for path in _MALLOC_CHECK if path.exists()), None)
    if library is None:
        pytest.skip("no libc_malloc_debug.so.0 beside the C library, which checks the heap")
    checked = clean_environment(HLO_DISPATCH_STRICT="1", MALLOC_CHECK_="3", LD_PRELOAD=str(library))
    done = run_python(UNDER_MALLOC_CHECK, environment=checked)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "sound\n"


_MALLOC_CHECK = [
    Path(folder) / "libc_malloc_debug.so.0"
    for folder in ("/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib", os.environ.get("GLIBC_DEBUG", "/lib"))
]
