"""The two steps of `make test`: neither hides the other, and a selection need not have tests of both kinds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

STEPS = Path(__file__).parents[1] / ".ci" / "test"
PASSED, FAILED, INTERRUPTED, NOTHING_SELECTED = 0, 1, 2, 5

# Stands for Python: notes how it was called, and ends as it is told to.
PYTHON = """#!/bin/bash
echo "$@" >> "$(dirname "$0")/calls"
case "$*" in *"not timing"*) exit {together};; *) exit {alone};; esac
"""


@pytest.mark.parametrize(
    ("together", "alone", "ended"),
    [
        (PASSED, PASSED, PASSED),
        (FAILED, PASSED, FAILED),
        (PASSED, FAILED, FAILED),
        (FAILED, FAILED, FAILED),
        (INTERRUPTED, PASSED, INTERRUPTED),
        (PASSED, NOTHING_SELECTED, PASSED),
        (NOTHING_SELECTED, PASSED, PASSED),
        (FAILED, NOTHING_SELECTED, FAILED),
        (NOTHING_SELECTED, FAILED, FAILED),
        (NOTHING_SELECTED, NOTHING_SELECTED, NOTHING_SELECTED),
    ],
)
def test_how_it_ends(tmp_path: Path, together: int, alone: int, ended: int) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON.format(together=together, alone=alone))
    python.chmod(0o755)
    done = subprocess.run([STEPS, python, "tests/a.py", "tests/b.py"], check=False, capture_output=True, text=True)
    assert done.returncode == ended, done.stderr
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert "-n 2" in first
    assert "-n" not in second.split()
    assert all(call.endswith("tests/a.py tests/b.py") for call in (first, second))
