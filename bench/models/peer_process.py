"""Handle of a peer's process: it compiles when it starts, and measures on request."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from hlo_dispatch.bench.models.catalogue import Job
from hlo_dispatch.bench.worker import clean_environment

COMMAND = (sys.executable, "-m", f"{__package__}.process")
_LONGEST_MESSAGE = 300


class PeerFailed(Exception):
    """The process ended before it had answered; its last words."""


class PeerProcess:
    """A context manager; compilers that the process started end with it."""

    def __init__(
        self, peer: str, job: Job, options: dict[str, int], policy: str, environment: Mapping[str, str]
    ) -> None:
        command = [*COMMAND, peer, job.model, job.dtype, str(job.batch)]
        command += ["--policy", policy, "--options", json.dumps(options)]
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**clean_environment(), **environment},
            start_new_session=True,
            text=True,
        )
        self._record: dict[str, Any] = {"samples": []}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._no_more_turns()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def compile(self) -> None:
        """Wait until it has compiled.

        Raises:
            PeerFailed.
        """
        self._record |= self._answer()

    def measure(self, seconds: float) -> None:
        """Have it call the model for so long.

        Raises:
            PeerFailed.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        self._record["samples"] += [round(sample, 7) for sample in self._answer()["samples"]]

    def end(self) -> dict[str, Any]:
        """Everything that it said.

        Raises:
            PeerFailed.
        """
        self._no_more_turns()
        self._record |= self._answer()
        self._process.wait()
        return self._record

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            return json.loads(line)
        except ValueError:
            raise self._failure() from None

    def _no_more_turns(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _failure(self) -> PeerFailed:
        self._no_more_turns()
        status = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return PeerFailed(f"{lines[-1][:_LONGEST_MESSAGE] if lines else 'no message'} (status {status})")
