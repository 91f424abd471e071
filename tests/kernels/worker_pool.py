"""Processes that run calls which may end them: one at a time is sent a call, and started anew when it has died."""

from __future__ import annotations

import dataclasses
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from wire_calls import WireCall

from environment import clean_environment

WORKER = Path(__file__).with_name("call_worker.py")
SECONDS_TO_START = 180
SECONDS_FOR_A_CALL = 60
LETTERS_OF_AN_END = 2000  # of what the process said last: JAX's tracebacks end with a remark
# glibc's checking malloc, where it is there: memory is overwritten when it is given and taken back, and what was
# written beyond its end ends the process.
WATCHFUL = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3"}


class Worker:
    """One child process, alive from the first call on until one of them ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._said = tempfile.TemporaryFile(mode="w+")
        self.targets: list[str] = []
        self.calls = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._said.close()

    def run(self, call: WireCall) -> dict[str, Any]:
        """What the call came to: `right`, `error`, `wrong`, or `died` with how the process ended."""
        if self._process is None:
            self._start()
        self.calls += 1
        return self._ask(self.line(call) + "\n", SECONDS_FOR_A_CALL)

    @staticmethod
    def line(call: WireCall) -> str:
        """The call as the worker reads it, to run it again."""
        return json.dumps(dataclasses.asdict(call))

    def _start(self) -> None:
        tests = Path(__file__).parents[1]
        environment = clean_environment(PYTHONPATH=f"{tests}:{tests / 'kernels'}", **WATCHFUL)
        self._lines = lines = queue.Queue()
        self._said.seek(0)
        self._said.truncate()
        self._process = process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, env=environment,
        )  # fmt: skip

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        ready = self._ask("", SECONDS_TO_START)
        assert "ready" in ready, ready
        self.targets = ready["ready"]

    def _ask(self, line: str, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            answer = self._lines.get(timeout=seconds)
        except (BrokenPipeError, queue.Empty):
            answer = ""
        if answer:
            return json.loads(answer)
        return {"died": self._stop()}

    def _stop(self) -> str:
        process, self._process = self._process, None
        if process is None:
            return ""
        assert process.stdin is not None
        try:
            process.stdin.close()
            status = process.wait(timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
            return "it did not answer"
        if status < 0:
            return signal.Signals(-status).name
        self._said.seek(0)
        return f"exit status {status}: {self._said.read().strip()[-LETTERS_OF_AN_END:]}"
