"""`python -m bench.long_attention`: both ways are run, their rows compared, and what they grew by is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from environment import clean_environment

pytestmark = pytest.mark.any_python

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("more", [(), ("--causal", "--dtype", "bf16")], ids=["f32", "causal bf16"])
def test_memory_and_seconds(more: tuple[str, ...]) -> None:
    sizes = ("--tokens", "1800", "--heads", "2", "--head-size", "32", "--calls", "1")
    command = [sys.executable, "-m", "bench.long_attention", *sizes, *more]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    assert [cell[0] for cell in cells] == ["stock", "dispatched"]
    scores = 2 * 1800 * 1800 * 4
    stock, dispatched = (float(cell[1].replace(",", "")) * 1e6 for cell in cells)
    assert dispatched < scores / 2 < scores <= stock
    assert all(0 < float(cell[2]) < 60 for cell in cells)
