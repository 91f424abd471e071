"""A short soak: what is computed is right, and whoever is killed leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from environment import clean_environment

pytestmark = pytest.mark.any_python

ROOT = Path(__file__).parents[2]


def test_a_quarter_of_a_minute(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.soak", "--minutes", "0.25", "--processes", "2", "--threads", "4"]
    done = subprocess.run(
        [*command, "--kill-every", "9", "--output", str(tmp_path)], cwd=ROOT, env=clean_environment(),
        capture_output=True, text=True, check=False, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["problems"] == []
    assert found["killed"] == 1
    assert len(found["processes"]) == 3
    assert found["processes"][0]["done"] > 0
    assert found["measured"] > 0
