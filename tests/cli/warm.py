"""The command run by a process that has imported everything already (tests/cli/warm_server.py)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

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
        self, arguments: Sequence[str], *, input: bytes, environment: Mapping[str, str], directory: Path, timeout: float
    ) -> subprocess.CompletedProcess:
        """As subprocess.run with captured output; raises TimeoutError, after which there is no server any more."""
        streams = {name: self._folder / name for name in ("input", "output", "errors")}
        for name, path in streams.items():
            path.write_bytes(input if name == "input" else b"")
        request = {"arguments": list(arguments), "environment": dict(environment), "directory": str(directory)}
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
        return subprocess.CompletedProcess(["hlo-dispatch", *arguments], json.loads(answer), output, errors)

    def close(self) -> None:
        """End the server."""
        self._lines.close()
        self._connection.close()
        self._process.wait(timeout=30)
