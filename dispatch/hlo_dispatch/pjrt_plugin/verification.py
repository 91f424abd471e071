"""Verification of rewritten modules before their first use, remembered for every process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from typing import BinaryIO

from hlo_dispatch.autotune.store import cache_directory
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.pjrt_plugin.channel import CompileRequest
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.vendor import libraries
from hlo_dispatch.vendor.onednn import ONEDNN
from hlo_dispatch.vendor.onemkl import ONEMKL
from hlo_dispatch.vendor.svml import SVML

SECONDS = 60.0
"""Longest time of one verification; a program that runs longer stays with stock."""
_FOLDER = "pjrt_verified"


def _in_memory(module: bytes) -> BinaryIO:
    """A file that ends with this process, however that ends."""
    file = open(os.memfd_create("hlo_module"), "wb")
    file.write(module)
    file.flush()
    return file


class Verification:
    """Verifications on one runtime, in a process that is started when it is first needed."""

    def __init__(self, runtime: str, seconds: float = SECONDS) -> None:
        """`runtime` identifies the runtime's build."""
        self._runtime = runtime
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._verified: set[str] = set()

    def problem(self, request: CompileRequest, rewritten: bytes, handlers: Sequence[str] = ()) -> str:
        """Why the rewritten module is not to be used; empty: it is right.

        Args:
            handlers: of each kernel of a user's own that it calls, target, symbol and path.
        """
        digest = self._digest(request, rewritten, handlers)
        marker = cache_directory() / _FOLDER / digest
        if digest in self._verified or marker.exists():
            return ""
        problem = self._verify(request, rewritten, handlers)
        if not problem:
            self._verified.add(digest)
            with contextlib.suppress(OSError):
                marker.parent.mkdir(parents=True, exist_ok=True)
                marker.touch()
        return problem

    def _digest(self, request: CompileRequest, rewritten: bytes, handlers: Sequence[str]) -> str:
        digest = hashlib.sha256(rewritten)
        digest.update(request.options)
        builds = [os.stat(handler.split(" ", 2)[2]) for handler in handlers]
        # A home directory may be shared by machines of several kinds.
        digest.update(f"\n{self._runtime} {this_context().fingerprint}".encode())
        digest.update(f" {handlers} {[(build.st_size, build.st_mtime_ns) for build in builds]}".encode())
        return digest.hexdigest()

    def _verify(self, request: CompileRequest, rewritten: bytes, handlers: Sequence[str]) -> str:
        with _in_memory(request.module) as stock_file, _in_memory(rewritten) as rewritten_file:
            files = {"stock": stock_file, "rewritten": rewritten_file}
            asked: dict[str, object] = {name: f"/proc/{os.getpid()}/fd/{file.fileno()}" for name, file in files.items()}
            asked |= {"devices": request.devices, "options": request.options.hex(), "handlers": list(handlers)}
            process = self._process if self._process is not None else self._start()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(asked).encode() + b"\n")
                process.stdin.flush()
            return self._answer(process)

    def _answer(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], self._seconds)
        line = process.stdout.readline() if ready else b""
        if line:
            return line.decode().strip()
        # It is stuck or has ended; the next module gets another one.
        process.kill()
        status = process.wait()
        self._process = None
        if not ready:
            return f"it did not run within {self._seconds:g} s beside stock's"
        return f"the runtime ended while it compiled and ran both modules (status {status})"

    def _start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"HLO_DISPATCH_POLICY": "never"}
        for description in (ONEDNN, ONEMKL, SVML):
            library = libraries.loaded(description.name)
            if not isinstance(library, Unavailable):
                environment[description.variable] = str(library.path)
        command = [sys.executable, "-P", "-m", "hlo_dispatch.pjrt_plugin.verifier"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        return self._process
