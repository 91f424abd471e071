"""Clients of the plugin without JAX: ours, and pypjrt's where it is installed."""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
from pathlib import Path

import numpy as np

from hlo_dispatch import kernels
from hlo_dispatch.bench.hosts.models import COMPILES, difference, milliseconds, print_found
from hlo_dispatch.pjrt_plugin.c_client import CClient


def clients(folder: Path, runtime: str, runs: int) -> None:
    """Compile and run the program on the runtime and on the plugin, in turns."""
    os.environ["HLO_DISPATCH_PJRT_RUNTIME"] = runtime
    os.environ.setdefault("HLO_DISPATCH_PYTHON", sys.executable)
    program = (folder / "program.mlir").read_bytes()
    with np.load(folder / "operands.npz") as operands:
        values = list(operands.values())
    programs, found = {}, {}
    ways = {"runtime": Path(runtime), "plugin": kernels.plugin_path()}
    for name, path in ways.items():
        client = CClient(path, backend_only=False)
        start = time.perf_counter()
        executable = client.compile(program, "mlir")
        found[f"{name}, first compile"] = f"{time.perf_counter() - start:.2f} s"
        if name == "plugin":
            for _ in range(COMPILES - 1):
                executable = client.compile(program, "mlir")
        buffers = [client.upload(value, "f32") for value in values]

        def run(client=client, executable=executable, buffers=buffers):
            (result,) = client.execute_buffers(executable, buffers, 1)
            return np.frombuffer(client.download(result), np.float32)

        programs[name] = run
    if importlib.util.find_spec("pypjrt"):
        for name, path in ways.items():
            programs[f"{name} by pypjrt"] = _pypjrt(path, program, values)
    found |= {f"{name}, difference": difference(folder, run()) for name, run in programs.items()}
    print_found(found | milliseconds(programs, runs))
    library = ctypes.CDLL(str(kernels.plugin_path()))
    library.hlo_dispatch_pjrt_failure.restype = ctypes.c_char_p
    dispatched = library.hlo_dispatch_pjrt_count(b"dispatched")
    print_found({"dispatched": f"{dispatched} compiles {library.hlo_dispatch_pjrt_failure().decode()}"})


def _pypjrt(path: Path, program: bytes, values):
    import pypjrt

    client = pypjrt.Client.create(str(path))
    executable = client.compile(program)
    device = client.lookup_device(0)
    buffers = [client.buffer_from_host(value.copy(), pypjrt.typing.F32.code, value.shape, device) for value in values]

    def run():
        (result,) = executable(*buffers)
        found = np.empty(result.nbytes // 4, np.float32)
        result.to_host(found)
        return found

    return run
