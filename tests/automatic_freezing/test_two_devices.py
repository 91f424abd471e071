"""One function under several devices and meshes: results, errors and where results are, as under `jax.jit`."""

from __future__ import annotations

from environment import clean_environment
from warm import run_python

PROGRAM = """
import itertools, jax, jax.numpy as jnp, numpy as np, hlo_dispatch
hlo_dispatch.install()
first, second = jax.devices()
WIDTH = 160
network = lambda p, x: jnp.tanh(x @ (p["w"] * 2.0) + p["b"])
p, x = {"w": jnp.eye(WIDTH), "b": jnp.ones(WIDTH)}, np.ones((4, WIDTH), "float32")
meshes = [jax.sharding.Mesh(np.array(devices), ("x",)) for devices in ([first], [first, second])]
on_meshes = [jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")) for mesh in meshes]
places = [first, second, *on_meshes]
weights, rows = ([tree, *(jax.device_put(tree, place) for place in places)] for tree in (p, jnp.asarray(x)))
rows.append(x)

def outcome(function, *arguments):
    try:
        result = function(*arguments)
    except ValueError as error:
        return "incompatible devices" in str(error)
    return np.asarray(result).round(4).tolist(), result.sharding, result.committed

stock, function = jax.jit(network), hlo_dispatch.jit(network)
frozen = 0
for p, x in [*itertools.product(weights, rows), *itertools.product(weights[::-1], rows[::-1])]:
    wanted = outcome(stock, p, x)
    for _ in range(2):
        assert outcome(function, p, x) == wanted, (wanted[1:], p["w"].sharding, x)
    frozen += function.sites[0].program is not None
    function.clear_cache() if len(x) and x is rows[-1] else None
print("frozen" if frozen else "never frozen")
"""


def test_one_function_under_devices_and_meshes() -> None:
    flags = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    environment = clean_environment(HLO_DISPATCH_FREEZE="now", HLO_DISPATCH_POLICY="never", XLA_FLAGS=flags)
    done = run_python(PROGRAM, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "frozen\n"
    assert "could not" not in done.stderr
