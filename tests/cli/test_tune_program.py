"""`hlo-dispatch tune --program`: every module of a program is tuned before it goes into production."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from environment import clean_environment
from hlo_dispatch.autotune.store import Store

COMMAND = Path(sys.executable).with_name("hlo-dispatch")
PROGRAM = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
import hlo_dispatch

x = np.random.default_rng(1).standard_normal((192, 192), dtype="float32")
def loss(x, w): return jnp.square(jnp.tanh(x @ w)).sum()
print("loss", float(jax.jit(loss)(x, x)), flush=True)
print("slope", float(jax.jit(jax.grad(loss))(x, x)[0, 0]), flush=True)
jax.jit(jnp.linalg.cholesky)(x @ x.T + 192 * np.eye(192, dtype="float32")).block_until_ready()
time.sleep(600 if "endless" in sys.argv else 0)
done = hlo_dispatch.statistics()
tally = hlo_dispatch.driver.measured_pipeline.tally if done.modules else None
counts = tally and [tally.measured, tally.unclear, tally.unmeasurable, len(tally.unreached), tally.failures]
print("did", done.rewritten, counts)
sys.exit(3 if "failing" in sys.argv else 0)
"""


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "train it.py").write_text(PROGRAM)
    return f"{sys.executable} 'train it.py'"


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    """A store of its own, and time to measure."""
    return {"HLO_DISPATCH_CACHE_DIR": str(tmp_path / "store"), "HLO_DISPATCH_MEASURE_SECONDS": "5"}


def production(tmp_path: Path, here: dict[str, str]) -> str:
    """What the program did, run as users do."""
    done = subprocess.run(
        [sys.executable, "train it.py"], env=clean_environment(HLO_DISPATCH="1", **here), cwd=tmp_path,
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()[-1]


@pytest.mark.timing
def test_a_program_is_settled(run, command: str, tmp_path: Path, here: dict[str, str]) -> None:
    for _ in range(3):
        tuned = run("tune", "--program", command, env=here, timeout=580)
        assert tuned.returncode == 0, tuned.stderr.decode()
        said = tuned.stdout.decode()
        entries = Store(Path(here["HLO_DISPATCH_CACHE_DIR"])).entries()
        if not any(entry.measured.provisional for entry in entries):
            break
    else:
        pytest.skip("other work disturbed every measurement: nothing is settled on such a machine")
    assert "loss " in said, "the program's own output"
    assert "did 0 None" in said, "the program ran as stock XLA made it"
    for module in ("jit_loss:", "jit_cholesky:"):
        assert module in said
    last = tuned.stderr.decode().splitlines()[-1]
    assert re.search(r"different regions? in 3 modules", last), last
    assert production(tmp_path, here).endswith("[0, 0, 0, 0, 0]"), "nothing is measured any more"


def test_a_program_that_fails_is_tuned_and_said(run, command: str, here: dict[str, str]) -> None:
    done = run("tune", "--validate-only", "--json", "--program", f"{command} failing", env=here, timeout=580)
    assert done.returncode == 1
    assert len(json.loads(done.stdout)) == 3, "its own output went elsewhere"
    assert "loss " in done.stderr.decode()
    assert "the program ended with status 3" in done.stderr.decode().splitlines()[-1]


def test_an_endless_program_is_ended_and_tuned(command: str, tmp_path: Path, here: dict[str, str]) -> None:
    """As by Ctrl-C on a terminal, which reaches both; a second one ends the tuning."""
    process = subprocess.Popen(
        [COMMAND, "tune", "--program", f"{command} endless"], env=clean_environment(**here), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        for line in process.stdout:
            if line.startswith("slope"):
                break
        time.sleep(2)
        os.killpg(process.pid, signal.SIGINT)
        seen: list[str] = []
        for line in process.stderr:
            seen.append(line)
            if line.startswith("module 1"):
                break
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)
        _, rest = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "module 1 of" in "".join(seen)
    assert "what was measured is kept" in rest.splitlines()[-1], rest
    assert process.returncode == 0


def test_mistakes_are_one_line(run, one_line, here: dict[str, str]) -> None:
    assert "--program" in one_line(run("tune", env=here))
    assert "nowhere" in one_line(run("tune", "--program", "nowhere at all", env=here))
    assert "compiled no module" in one_line(run("tune", "--program", f"{sys.executable} -c pass", env=here))
