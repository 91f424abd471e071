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
from hlo_dispatch.bench.hosts.models import COMPILES, calls_in, fact
from hlo_dispatch.bench.hosts.turns import answer_turns
from hlo_dispatch.pjrt_plugin.c_client import CClient

# Places in PJRT's table of functions, and words that no struct has more of.
OPTIMIZED_PROGRAM, GET_EXECUTABLE, WORDS = 48, 51, 64


def in_clients(folder: Path, runtime: str, number: str, runs: int) -> None:
    """Compile the program on the runtime and on the plugin, then run it in turns; `number` is the runtime's."""
    os.environ["HLO_DISPATCH_PJRT_RUNTIME"] = runtime
    os.environ.setdefault("HLO_DISPATCH_PYTHON", sys.executable)
    program = (folder / "program.mlir").read_bytes()
    with np.load(folder / "operands.npz") as operands:
        values = list(operands.values())
    programs, facts = {}, {}
    ways = {f"{number}: runtime": Path(runtime), f"{number}: plugin": kernels.plugin_path()}
    for name, path in ways.items():
        client = CClient(path, backend_only=False, devices=1)
        start = time.perf_counter()
        executable = client.compile(program, "mlir")
        first = time.perf_counter() - start
        if name.endswith("plugin"):
            for _ in range(COMPILES - 1):
                executable = client.compile(program, "mlir")
        buffers = [client.upload(value, "f32") for value in values]

        def result(client=client, executable=executable, buffers=buffers):
            (buffer,) = client.execute_buffers(executable, buffers, 1)
            return buffer

        got = np.frombuffer(client.download(result()), np.float32)
        calls = calls_in(optimized_program(client, executable))
        facts[name] = f"{fact(folder, got, calls)}, first compile {first:.1f} s"
        programs[name] = lambda client=client, result=result: _Freed(client, result())
    if importlib.util.find_spec("pypjrt"):
        for name, path in ways.items():
            programs[f"{name} by pypjrt"], got = _pypjrt(path, program, values)
            facts[f"{name} by pypjrt"] = fact(folder, got)
    library = ctypes.CDLL(str(kernels.plugin_path()))
    library.hlo_dispatch_pjrt_failure.restype = ctypes.c_char_p
    failure = library.hlo_dispatch_pjrt_failure().decode()
    if failure:
        facts[f"{number}: plugin"] += f", {failure}"
    answer_turns(facts, programs, runs)


def optimized_program(client: CClient, loaded: int) -> bytes:
    """What the library shows as an executable's optimized program."""
    executable = client.call(GET_EXECUTABLE, loaded)[3]
    program = (ctypes.c_uint64 * WORDS)(8 * WORDS)
    client.call(OPTIMIZED_PROGRAM, executable, ctypes.addressof(program))
    code = ctypes.create_string_buffer(program[3])
    program[2] = ctypes.addressof(code)
    client.call(OPTIMIZED_PROGRAM, executable, ctypes.addressof(program))
    return code.raw


class _Freed:
    """A buffer that is freed with this object."""

    def __init__(self, client: CClient, buffer: int) -> None:
        self._client, self._buffer = client, buffer

    def __del__(self) -> None:
        self._client.destroy(self._buffer)


def _pypjrt(path: Path, program: bytes, values):
    """A call of the program until its results are there, and the result of one."""
    import pypjrt

    client = pypjrt.Client.create(str(path), options={"cpu_device_count": 1})
    executable = client.compile(program)
    device = client.lookup_device(0)
    buffers = [client.buffer_from_host(value.copy(), pypjrt.typing.F32.code, value.shape, device) for value in values]
    (result,) = executable(*buffers)
    found = np.empty(result.nbytes // 4, np.float32)
    result.to_host(found)
    return lambda: executable(*buffers), found
