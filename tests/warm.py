"""The command, or Python code, run by children of a process that has imported everything already (warm_server.py).

Each child is a process of its own in which nothing was started yet. Tests of what an import or a start does have no use
for it.
"""

from __future__ import annotations

import atexit
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from environment import clean_environment

SERVER = Path(__file__).with_name("warm_server.py")


class Warm:
    """One server, and the command run by its children, one after the other."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """`folder` is for the streams' files; what `environment` says at import holds for all runs."""
        self._folder = folder
        ours, theirs = socket.socketpair()
        command = [sys.executable, str(SERVER), str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=dict(environment))
        theirs.close()
        self._connection = ours
        self._lines = ours.makefile("rw")

    def run(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        timeout: float,
        input: bytes = b"",
        code: str = "",
    ) -> subprocess.CompletedProcess:
        """As subprocess.run with captured output; raises TimeoutError, after which there is no server any more.

        Args:
            code: Python to be run with these arguments; empty: the command is.
        """
        streams = {name: self._folder / name for name in ("input", "output", "errors")}
        for name, path in streams.items():
            path.write_bytes(input if name == "input" else b"")
        request = {"arguments": list(arguments), "environment": dict(environment), "directory": str(directory)}
        request["code"] = code
        request |= {name: str(path) for name, path in streams.items()}
        self._connection.settimeout(timeout)
        try:
            self._lines.write(json.dumps(request) + "\n")
            self._lines.flush()
            answer = self._lines.readline()
        except TimeoutError:
            self._process.kill()
            raise
        assert answer, "the server of warm commands has ended"
        output, errors = (streams[name].read_bytes() for name in ("output", "errors"))
        return subprocess.CompletedProcess([code or "hlo-dispatch", *arguments], json.loads(answer), output, errors)

    def close(self) -> None:
        """End the server."""
        self._lines.close()
        self._connection.close()
        self._process.wait(timeout=30)


# What changes these changes what an import does, or how the C library was started.
_READ_AT_IMPORT = ("JAX_", "XLA_", "PYTHON", "LD_", "KERAS_", "PATH", "MALLOC_", "GLIBC_")


def run_python(
    code: str, *arguments: object, environment: Mapping[str, str], cwd: Path | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """As `python -c code arguments` in a process of its own, output captured."""
    words, folder = [str(argument) for argument in arguments], cwd or Path.cwd()
    usual = clean_environment()
    read = (name for name in {*environment, *usual} if name.startswith(_READ_AT_IMPORT))
    if any(environment.get(name) != usual.get(name) for name in read):
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(
            command, env=dict(environment), cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
        )
    try:
        done = _server().run(words, environment=environment, directory=folder, timeout=timeout, code=code)
    except TimeoutError:
        _server.cache_clear()
        raise
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@lru_cache(maxsize=1)
def _server() -> Warm:
    folder = Path(tempfile.mkdtemp(prefix="hlo_dispatch_warm_"))
    server = Warm(folder, clean_environment())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.close)
    return server
