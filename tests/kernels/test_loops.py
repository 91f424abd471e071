"""Loops of many small calls of every kernel end, in one thread and in eight at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from environment import clean_environment

pytestmark = [pytest.mark.any_processor, pytest.mark.any_python]

CALLS, THREADS = 200, 8
SECONDS = 240
WORKER = Path(__file__).with_name("loops_worker.py")


def test_they_end() -> None:
    """`python -m bench.soak --loops` runs longer ones."""
    tests = WORKER.parents[1]
    try:
        done = subprocess.run(
            [sys.executable, str(WORKER), str(CALLS), str(THREADS)], capture_output=True, text=True, check=False,
            env=clean_environment(PYTHONPATH=f"{tests}:{tests / 'kernels'}"), timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace").split()
        raise AssertionError(f"{said[-1] if said else 'nothing'} does not end") from None
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
