"""Two real processes of jax.distributed: both measure, and of what they compute together process 0 decides."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from environment import clean_environment
from hlo_dispatch.api import pipeline
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin import replica_consensus

PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

rank = int(sys.argv[1])
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, rank, initialization_timeout=120)

from hlo_dispatch import statistics
from hlo_dispatch.autotune.compare import measure
from hlo_dispatch.autotune.compare.timing import Time
# However busy the machine is: the first process finds every kernel faster, the second one stock.
Time.may_win = Time.is_doubtful = lambda *_: False
measure._fastest = lambda trial, found, stock: next(iter(found)) if rank == 0 else "stock"
measure._lost_confirmation = lambda *_: None

def compiled(function, *arguments):
    executable = jax.jit(function).lower(*arguments).compile()
    return executable, executable.as_text().count('custom_call_target="hlo_dispatch.')

x, w = np.random.default_rng(1).standard_normal((2, 512, 512), dtype="float32")
layer, alone = compiled(lambda x, w: jnp.tanh(x @ w), x[:96], w)
np.testing.assert_allclose(layer(x[:96], w), np.tanh(x[:96] @ w), atol=1e-4)
measured_alone = statistics().measured

mesh = Mesh(np.array(jax.devices()).reshape(4), ("data",))
shared = jax.make_array_from_callback(x.shape, NamedSharding(mesh, PartitionSpec("data")), lambda index: x[index])
weights = jax.device_put(w, NamedSharding(mesh, PartitionSpec()))
def step(x, w):
    return w - jnp.tanh(x @ w).mean(0)
update, together = compiled(step, shared, weights)
result = np.asarray(update(shared, weights).addressable_shards[0].data)
np.testing.assert_allclose(result, w - np.tanh(x @ w).mean(0), atol=1e-4)
done = statistics()
print("TOLD", json.dumps({
    "alone": alone, "measured_alone": measured_alone, "together": together, "measured": done.measured,
    "failures": done.failures + done.measuring_failures, "bits": result.tobytes().hex()[:4000],
}))
"""


def test_both_measure_and_decide_alike(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(2):
        environment = clean_environment(
            HLO_DISPATCH="1",
            HLO_DISPATCH_CACHE_DIR=str(tmp_path / f"store {rank}"),
            HLO_DISPATCH_MEASURE_SECONDS="60",
            HLO_DISPATCH_STRICT="1",
        )
        command = [sys.executable, "-c", PROGRAM, str(rank), str(port)]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    outputs = [process.communicate(timeout=400) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    # Gloo prints, too.
    lines = [line for output, _ in outputs for line in output.splitlines() if line.startswith("TOLD ")]
    first, second = (json.loads(line.removeprefix("TOLD ")) for line in lines)
    assert first["failures"] == second["failures"] == 0
    assert first["measured_alone"] > 0
    assert second["measured_alone"] > 0, "on devices of its own"
    assert (first["alone"], second["alone"]) == (1, 0), "alone each follows its own measurements"
    assert first["together"] == second["together"] > 0, "together the first one's"
    assert second["measured"] == second["measured_alone"], "nobody else measures what the first one decides"
    assert first["bits"] == second["bits"]


class Follower(replica_consensus.ProcessGroup):
    """The second process of a program, which receives this."""

    def __init__(self, published: dict | None) -> None:
        super().__init__(None, 1)
        self.published = published

    def runs(self, module: Module) -> bool:
        return True

    def receive(self, key: str) -> dict | None:
        return self.published


@pytest.mark.parametrize(("published", "is_dispatched"), [({"stock": True}, False), (None, True)])
def test_where_the_first_process_fails_the_others_have_stock(
    monkeypatch: pytest.MonkeyPatch, published: dict | None, is_dispatched: bool
) -> None:
    x = jnp.ones((96, 96))
    compiled = jax.jit(lambda x: jnp.tanh(x @ x)).lower(x).compile()
    module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    monkeypatch.setattr(replica_consensus, "MEASURING", ("always",))
    group = Follower(published and published | {"context": ""})
    result, _ = replica_consensus.run(pipeline((), "always"), module, details=False, find_group=lambda: group)
    assert (result is not None) == is_dispatched
