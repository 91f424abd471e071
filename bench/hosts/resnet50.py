"""ResNet50 (Keras, random weights) as StableHLO: milliseconds of the runtime alone, of the plugin, and in JAX."""

# pyright: basic, reportArgumentType=false
from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hlo_dispatch import kernels
from hlo_dispatch.demo.timing import interleaved


def export(folder: Path, size: int, runs: int) -> None:
    """Write the program, its operands, JAX's result, and JAX's times with the pass and without it."""
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import keras

    import hlo_dispatch

    model = keras.applications.ResNet50(weights=None, input_shape=(size, size, 3))
    weights = [variable.value for variable in (*model.trainable_variables, *model.non_trainable_variables)]
    count = len(model.trainable_variables)
    x = np.random.default_rng(0).standard_normal((1, size, size, 3), np.float32)

    def forward(x, weights):
        return model.stateless_call(weights[:count], weights[count:], x, training=False)[0]

    lowered = jax.jit(forward, keep_unused=True).lower(x, weights)
    (folder / "program.mlir").write_text(str(lowered.compiler_ir("stablehlo")))
    np.savez(folder / "operands.npz", *[np.asarray(value) for value in jax.tree.leaves((x, weights))])
    stock = lowered.compile()
    expected = np.asarray(stock(x, weights))
    with hlo_dispatch.enabled():
        dispatched = jax.jit(forward, keep_unused=True).lower(x, weights).compile()
    np.save(folder / "expected.npy", expected)
    programs = {
        "JAX": lambda: np.asarray(stock(x, weights)),
        "JAX, dispatched": lambda: np.asarray(dispatched(x, weights)),
    }
    times = milliseconds(programs, runs)
    times["difference"] = float(np.abs(np.asarray(dispatched(x, weights)) - expected).max())
    (folder / "jax.json").write_text(json.dumps(times))


def milliseconds(programs, runs: int) -> dict[str, float]:
    """Median milliseconds of each, in turns."""
    times = interleaved(programs, seconds=float("inf"), rounds=runs)
    return {name: round(timing.median * 1e3, 2) for name, timing in times.items()}


def host(folder: Path, runtime: str, runs: int) -> dict[str, float | str]:
    """Compile and run the program on the runtime and on the plugin."""
    from hlo_dispatch.pjrt_plugin.c_client import CClient

    os.environ["HLO_DISPATCH_PJRT_RUNTIME"] = runtime
    os.environ.setdefault("HLO_DISPATCH_PYTHON", sys.executable)
    program = (folder / "program.mlir").read_bytes()
    with np.load(folder / "operands.npz") as operands:
        values = list(operands.values())
    expected = np.load(folder / "expected.npy")
    found: dict[str, float | str] = {}
    programs = {}
    for name, path in (("runtime", Path(runtime)), ("plugin", kernels.plugin_path())):
        client = CClient(path, backend_only=False)
        start = time.perf_counter()
        executable = client.compile(program, "mlir")
        found[f"{name}, seconds of compiling"] = round(time.perf_counter() - start, 2)
        buffers = [client.upload(value, "f32") for value in values]

        def run(client=client, executable=executable, buffers=buffers):
            (result,) = client.execute_buffers(executable, buffers, 1)
            return np.frombuffer(client.download(result), np.float32)

        programs[name] = run
        found[f"{name}, difference"] = float(np.abs(run().reshape(expected.shape) - expected).max())
    found |= milliseconds(programs, runs)
    library = ctypes.CDLL(str(kernels.plugin_path()))
    library.hlo_dispatch_pjrt_failure.restype = ctypes.c_char_p
    found["failure"] = library.hlo_dispatch_pjrt_failure().decode()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", action="append", required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "export":
        export(Path(options.folder), options.size, options.runs)
        return
    if options.step == "host":
        print(json.dumps(host(Path(options.folder), options.runtime[0], options.runs), indent=1))
        return
    with tempfile.TemporaryDirectory() as folder:
        for step, runtime in (("export", options.runtime[0]), *(("host", runtime) for runtime in options.runtime)):
            command = [sys.executable, "-m", "bench.hosts.resnet50", "--step", step, "--folder", folder]
            command += ["--runtime", runtime, "--size", str(options.size), "--runs", str(options.runs)]
            print(runtime if step == "host" else "JAX", flush=True)
            subprocess.run(command, check=True)
            if step == "export":
                print((Path(folder) / "jax.json").read_text(), flush=True)


if __name__ == "__main__":
    main()
