"""Verification of rewritten modules before their first use, remembered for every process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import BinaryIO

from hlo_dispatch.autotune.store import cache_directory
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.ir.module_files import write_atomically
from hlo_dispatch.pjrt_plugin.channel import CompileRequest
from hlo_dispatch.pjrt_plugin.trial import DISTURBED, SLOWER
from hlo_dispatch.pjrt_plugin.verifier import STOCK_HAS_RUN
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.vendor import libraries
from hlo_dispatch.vendor.onednn import ONEDNN
from hlo_dispatch.vendor.onemkl import ONEMKL
from hlo_dispatch.vendor.svml import SVML

STOCK_SHARE, SHARE, TRIAL_SHARE = 0.5, 0.9, 0.8
"""Of the time that the host waits, what stock's module may take, when the verification ends at the latest, and when the
trial in it does."""
_FOLDER = "pjrt_verified"
_VERIFIER = (sys.executable, "-P", "-m", "hlo_dispatch.pjrt_plugin.verifier")


def _in_memory(module: bytes) -> BinaryIO:
    """A file that ends with this process, however that ends."""
    file = open(os.memfd_create("hlo_module"), "wb")
    file.write(module)
    file.flush()
    return file


class Verification:
    """Verifications on one runtime, in a process that is started when it is first needed."""

    def __init__(self, runtime: str, verifier: Sequence[str] = _VERIFIER) -> None:
        """`runtime` identifies the runtime's build, `verifier` is that process's command."""
        self._runtime = runtime
        self._verifier = verifier
        self._process: subprocess.Popen[bytes] | None = None
        self._verdicts: dict[str, str] = {}

    def problem(
        self, request: CompileRequest, rewritten: bytes, handlers: Sequence[str] = (), *, timed: bool = False
    ) -> str:
        """Why the rewritten module is not to be used; empty: it is right.

        Args:
            handlers: of each kernel of a user's own that it calls, target, symbol and path.
            timed: whether a module that is slower than stock's is not to be used; that sentence begins with SLOWER.
        """
        digest = self._digest(request, rewritten, handlers, timed)
        marker = cache_directory() / _FOLDER / digest
        if digest in self._verdicts:
            return self._verdicts[digest]
        with contextlib.suppress(OSError):
            return marker.read_text()
        problem = self._verify(request, rewritten, handlers, timed)
        if not problem or (problem.startswith(SLOWER) and not problem.endswith(DISTURBED)):
            self._verdicts[digest] = problem
            with contextlib.suppress(OSError):
                marker.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(str(marker), problem.encode())
        return problem

    def end(self) -> int:
        """End the verifier, which may be stuck, and return its status; the next module gets another one."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with process:
            process.kill()
        return process.returncode

    def _digest(self, request: CompileRequest, rewritten: bytes, handlers: Sequence[str], timed: bool) -> str:
        digest = hashlib.sha256(rewritten)
        # Times depend on stock's module as well.
        digest.update(request.module if timed else b"")
        digest.update(request.options)
        builds = [os.stat(handler.split(" ", 2)[2]) for handler in handlers]
        # A home directory may be shared by machines of several kinds.
        digest.update(f"\n{self._runtime} {this_context().fingerprint}".encode())
        digest.update(f" {handlers} {[(build.st_size, build.st_mtime_ns) for build in builds]}".encode())
        return digest.hexdigest()

    def _verify(self, request: CompileRequest, rewritten: bytes, handlers: Sequence[str], timed: bool) -> str:
        with _in_memory(request.module) as stock_file, _in_memory(rewritten) as rewritten_file:
            files = {"stock": stock_file, "rewritten": rewritten_file}
            asked: dict[str, object] = {name: f"/proc/{os.getpid()}/fd/{file.fileno()}" for name, file in files.items()}
            asked |= {"devices": request.devices, "options": request.options.hex(), "handlers": list(handlers)}
            trial_until = request.deadline - (1 - TRIAL_SHARE) * request.time_limit
            asked |= {"trial_until": trial_until if timed else None}
            process = self._process if self._process is not None else self._start()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(asked).encode() + b"\n")
                process.stdin.flush()
            return self._answer(process, request)

    def _answer(self, process: subprocess.Popen[bytes], request: CompileRequest) -> str:
        assert process.stdout is not None
        start = time.monotonic()
        last = request.deadline - (1 - SHARE) * request.time_limit
        until = min(start + STOCK_SHARE * request.time_limit, last)
        while select.select([process.stdout], [], [], max(until - time.monotonic(), 0))[0]:
            line = process.stdout.readline()
            if not line:
                return f"the runtime ended while it compiled and ran both modules (status {self.end()})"
            if line != STOCK_HAS_RUN:
                return line.decode().strip()
            until = last
        self.end()
        return f"it did not run within {time.monotonic() - start:.0f} s beside stock's"

    def _start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"HLO_DISPATCH_POLICY": "never"}
        for description in (ONEDNN, ONEMKL, SVML):
            library = libraries.loaded(description.name)
            if not isinstance(library, Unavailable):
                environment[description.variable] = str(library.path)
        self._process = subprocess.Popen(
            self._verifier, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        return self._process
