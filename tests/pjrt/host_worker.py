"""A host of the plugin without JAX: compiles module.pb of a folder, runs it, writes result*.npy, prints counts.

host_worker.py PLUGIN FOLDER [fork | twice | old | archive]
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from hlo_dispatch.pjrt_plugin.c_client import CClient, PjrtError

PLATFORM_VERSION, SERIALIZE, GET_EXECUTABLE, DESERIALIZE = 14, 49, 51, 56

plugin, folder, options = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
signals = []
signal.signal(signal.SIGCHLD, lambda *_: signals.append(1))
# The sizes that torch_xla 2.9.0 gives, of the structs that have grown since.
OLD = {10: 72, 56: 56, -1: 80} if "old" in options else {}
client = CClient(plugin, backend_only=False, sizes=OLD)
with np.load(folder / "operands.npz") as operands:
    inputs = [operands["x"], operands["w"]]
module = (folder / "module.pb").read_bytes()


def run(number: int) -> None:
    (result,) = client.run(module, inputs, ["f32"] * len(inputs), 1)
    np.save(folder / f"result{number}.npy", np.frombuffer(result, np.float32))


start = time.perf_counter()
run(0)
if "twice" in options:
    run(1)


def load(archive: bytes) -> int:
    buffer = ctypes.create_string_buffer(archive, len(archive))
    return client.call(DESERIALIZE, client.client, ctypes.addressof(buffer), len(archive))[5]


def archived() -> list[str]:
    """The version; then what is said of executables that were serialized, and then changed."""
    executable = client.call(GET_EXECUTABLE, client.compile(module))[3]
    archive = ctypes.string_at(*client.call(SERIALIZE, executable)[3:5])
    said = [ctypes.string_at(*client.call(PLATFORM_VERSION, client.client)[3:5]).decode()]
    (result,) = client.execute(load(archive), inputs, ["f32"] * len(inputs), 1)
    np.save(folder / "result9.npy", np.frombuffer(result, np.float32))
    behind_the_runtime = archive.index(b"\nhlo-dispatch=")  # a line without its end
    changed_ones = (
        archive.replace(b"\nhlo-dispatch=", b"\nhlo-dispatch=9."), archive[40:], archive[:60],
        archive[:behind_the_runtime],
    )  # fmt: skip
    for changed in changed_ones:
        try:
            load(changed)
        except PjrtError as error:
            said.append(str(error))
    return said


said = archived() if "archive" in options else []
library = ctypes.CDLL(str(plugin))
library.hlo_dispatch_pjrt_failure.restype = ctypes.c_char_p
library.hlo_dispatch_pjrt_count.restype = ctypes.c_int64
forked = None
if "fork" in options:
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    forked = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signals.clear()
    run(2)
try:
    children = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    children = None
maps = Path("/proc/self/maps").read_text()
print(
    json.dumps(
        {
            "seconds": time.perf_counter() - start,
            "failure": library.hlo_dispatch_pjrt_failure().decode(),
            "forked": forked,
            "said": said,
            "signals": len(signals),
            "children": children,
            "oneDNN": "libdnnl" in maps,
        }
        | {name: library.hlo_dispatch_pjrt_count(name.encode()) for name in ("dispatched", "unchanged", "failed")}
    ),
    flush=True,
)
