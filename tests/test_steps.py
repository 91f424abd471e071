"""The two steps of `make test`: neither hides the other, a selection need not have tests of both kinds, and what fails
gets one more try of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

STEPS = Path(__file__).parents[1] / ".ci" / "test"
PASSED, FAILED, INTERRUPTED, NOTHING_SELECTED = 0, 1, 2, 5

# Stands for Python: notes how it was called, and ends as it is told to.
PYTHON = """#!/bin/bash
echo "$@" >> "$(dirname "$0")/calls"
case "$*" in
  *"--last-failed "*) echo "tests/a.py::test_it PASSED [100%]"; exit {again};;
  *"not timing"*) exit {together};;
  *) exit {alone};;
esac
"""


@pytest.mark.parametrize(
    ("together", "alone", "again", "ended"),
    [
        (PASSED, PASSED, None, PASSED),
        (FAILED, PASSED, FAILED, FAILED),
        (FAILED, PASSED, PASSED, PASSED),
        (FAILED, PASSED, INTERRUPTED, INTERRUPTED),
        (PASSED, FAILED, FAILED, FAILED),
        (PASSED, FAILED, PASSED, PASSED),
        (FAILED, FAILED, FAILED, FAILED),
        (FAILED, FAILED, PASSED, PASSED),
        (INTERRUPTED, PASSED, None, INTERRUPTED),
        (PASSED, NOTHING_SELECTED, None, PASSED),
        (NOTHING_SELECTED, PASSED, None, PASSED),
        (FAILED, NOTHING_SELECTED, FAILED, FAILED),
        (NOTHING_SELECTED, FAILED, FAILED, FAILED),
        (NOTHING_SELECTED, NOTHING_SELECTED, None, NOTHING_SELECTED),
    ],
)
def test_how_it_ends(tmp_path: Path, together: int, alone: int, again: int | None, ended: int) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON.format(together=together, alone=alone, again=again))
    python.chmod(0o755)
    done = subprocess.run([STEPS, python, "tests/a.py", "tests/b.py"], check=False, capture_output=True, text=True)
    assert done.returncode == ended, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    first, second = (call for call in calls if "--last-failed " not in call)
    assert "-n 2" in first
    assert "-n" not in second.split()
    assert all(call.endswith("tests/a.py tests/b.py") for call in calls)
    more = [call for call in calls if "--last-failed " in call]
    assert len(more) == [together, alone].count(FAILED)
    assert not any("-n" in call.split() for call in more)
    assert ("UNSTEADY" in done.stdout) == bool(more)


def test_only_what_compares_times_is_read_to_be_run_alone(tmp_path: Path) -> None:
    python, tests = tmp_path / "python", tmp_path / "tests"
    python.write_text(PYTHON.format(together=PASSED, alone=PASSED, again=None))
    python.chmod(0o755)
    tests.mkdir()
    (tests / "test_a.py").write_text("@pytest.mark.timing\ndef test_it(): pass\n")
    (tests / "test_b.py").write_text("def test_it(): pass\n")
    done = subprocess.run(
        [STEPS, python, tests], check=False, env=os.environ | {"TEST_MARKERS": "not slow"}, capture_output=True
    )
    assert done.returncode == PASSED
    together, alone = (tmp_path / "calls").read_text().splitlines()
    assert "-m not timing and (not slow)" in together
    assert together.endswith(f" {tests}")
    assert alone == f"-m pytest -m timing and (not slow) {tests}/test_a.py"
