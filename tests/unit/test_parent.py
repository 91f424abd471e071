"""A child process that ends with its parent, and not before."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from environment import clean_environment

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, start_new_session=True)
print(child.pid, child.stdout.readline(), flush=True)
sys.stdin.read()
"""
CHILD = """
import time
from hlo_dispatch.process.parent import end_with_parent
end_with_parent()
print("ready", flush=True)
time.sleep(100)
"""


def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment(), text=True,
    )  # fmt: skip
    assert parent.stdout
    number, said = parent.stdout.readline().split()
    assert "ready" in said
    assert is_running(number)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 60
    while is_running(number):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(number: str) -> bool:
    """Not so: one that has ended, and that nobody has waited for."""
    try:
        return Path("/proc", number, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
