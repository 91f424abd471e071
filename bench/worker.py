"""Worker process for one way of running cases: XLA's flags hold for a whole process, and thread pools of one
library must not live beside another's. Requests and answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from hlo_dispatch.demo.timing import interleaved, once
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.process.parent import end_with_parent

XLA_ONEDNN_FLAGS = "--xla_cpu_experimental_onednn_custom_call=true --xla_cpu_experimental_ynn_fusion_type="

ROUNDS = 20
"""Of one request: files of results hold every sample, and more than a few hundred say nothing new."""


class WorkerFailed(HloDispatchError):
    """A worker could not do what it was asked for, or is gone; the message is its own."""


class Worker:
    """The parent's end of a worker: `python -m MODULE ARGUMENT...`."""

    def __init__(self, module: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()
        # A session of its own: an interrupt is the parent's to answer, after the file was written.
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=clean_environment() | (environment or {}),
            start_new_session=True,
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request, wait for the answer.

        Raises:
            WorkerFailed: the answer is an error, or the worker ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        end = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"{lines[-1].strip()} ({end})" if lines else end

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()
        self._errors.close()


def clean_environment() -> dict[str, str]:
    """This process's environment without what would dispatch behind the bench's back."""
    changed = ("HLO_DISPATCH", "HLO_DISPATCH_POLICY", "HLO_DISPATCH_TABLES")
    return {name: value for name, value in os.environ.items() if name not in changed} | {"JAX_PLATFORMS": "cpu"}


def with_flags(flags: str) -> dict[str, str]:
    """The environment variable that gives XLA these flags besides the user's."""
    return {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The worker's end: answer requests until there are no more. Whatever libraries print goes to standard error."""
    end_with_parent()
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            try:
                reply = answer(json.loads(line))
            except Exception as error:
                reply = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:400]}
            answers.write(json.dumps(reply) + "\n")
            answers.flush()


def timed(calls: dict[str, Callable[[], object]], request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request for times: of all calls in turns, or of a single call of one."""
    if "sides" in request:
        return {"sides": list(calls)}
    if "once" in request:
        return {"seconds": once(calls[request["once"]])}
    times = interleaved(calls, seconds=request["seconds"], rounds=ROUNDS)
    return {side: list(timing.samples) for side, timing in times.items()}
