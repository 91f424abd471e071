"""Frozen functions in separate processes: JAX's compilation cache, and several devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from environment import WITH_COMPILATION_CACHE, clean_environment
from warm import run_python

CACHED = (
    WITH_COMPILATION_CACHE
    + """
import jax.numpy as jnp, numpy as np, hlo_dispatch
if sys.argv[2] != "stock":
    hlo_dispatch.install(policy=sys.argv[2])
models = {"tanh": jnp.tanh, "sin": jnp.sin}
x = np.ones((4, 64), "float32")
w = np.full((64, 64), 0.01, "float32")
for name in sys.argv[3:]:
    model = lambda w, x: models[name](x @ w)
    wanted = np.asarray(model(w, x))
    fast = hlo_dispatch.freeze(model, w)
    hits.clear()
    result = fast(x)
    print("found" if hits else "compiled")
    np.testing.assert_allclose(result, wanted, rtol=1e-5)
"""
)

DEVICES = """
import jax, jax.numpy as jnp, numpy as np, hlo_dispatch
first, second = jax.devices()
network = lambda p, x: jnp.tanh(x @ p["w"]) + p["b"]
p = {"w": jnp.ones((64, 64)) * 0.01, "b": jnp.arange(64.0)}
x = jnp.ones((4, 64))
wanted = np.asarray(network(p, x))

def check(y, device, committed):
    np.testing.assert_allclose(y, wanted, rtol=1e-5)
    assert (y.devices(), y.committed) == ({device}, committed), (y.devices(), y.committed)

fast = hlo_dispatch.freeze(network, p)
there = jax.device_put(x, second)
for _ in range(3):
    check(fast(x), first, False)
    check(fast(jax.device_put(x, first)), first, True)
    check(fast(there), second, True)
    with jax.default_device(second):
        check(fast(np.asarray(x)), second, False)
assert len(fast.report.programs) == 2, "the default device is a setting that counts for jit"
on_second = hlo_dispatch.freeze(network, jax.device_put(p, second))
for _ in range(2):
    check(on_second(np.asarray(x)), second, True)

def refused(error, said, call):
    try:
        call()
    except error as problem:
        assert said in str(problem), problem
    else:
        raise AssertionError(said)

refused(ValueError, "incompatible devices", lambda: on_second(jax.device_put(x, first)))
rows = jax.NamedSharding(jax.make_mesh((2,), ("rows",)), jax.P("rows"))
refused(hlo_dispatch.FreezeError, "an argument", lambda: fast(jax.device_put(x, rows)))
refused(hlo_dispatch.FreezeError, "lies on 2 devices", lambda: hlo_dispatch.freeze(network, jax.device_put(p, rows)))
check(fast(x), first, False)
"""


def lines(code: str, *arguments: object, **environment: str) -> list[str]:
    done = run_python(code, *arguments, environment=clean_environment(HLO_DISPATCH_STRICT="1", **environment))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("policy", ["stock", "stored", "always"])
def test_a_program_is_found_by_what_it_computes(policy: str, tmp_path: Path) -> None:
    assert lines(CACHED, tmp_path, policy, "tanh") == ["compiled"]
    assert lines(CACHED, tmp_path, policy, "sin", "tanh") == ["compiled", "found"]
    assert lines(CACHED, tmp_path, policy, "sin", "tanh") == ["found", "found"]


def test_several_devices() -> None:
    assert lines(DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=2") == []


ALTERNATING = """
import jax, jax.numpy as jnp, hlo_dispatch
from jax import monitoring
first, second = jax.devices()
fast = hlo_dispatch.freeze(lambda w, x: jnp.tanh(x @ jnp.exp(w)), jnp.ones((64, 64)))
here, there = jnp.ones((4, 64)), jax.device_put(jnp.ones((4, 64)), second)
for _ in range(2):
    fast(here), fast(there)
compiled = []
monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
)
for _ in range(4):
    fast(here), fast(there)
print(len(compiled))
"""


def test_devices_in_turns_compile_once_each() -> None:
    assert lines(ALTERNATING, XLA_FLAGS="--xla_force_host_platform_device_count=2") == ["0"]
