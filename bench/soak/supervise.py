"""Starts the processes of the soak, kills one of them now and then, and looks at what they leave behind."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hlo_dispatch.autotune.store import FILE

PATIENCE = 300.0
"""Seconds after the end until a process has to be gone."""
# Measures one region of a size that no program of the soak has, and says how long it took.
FRESH = """
import time
import jax, numpy as np, hlo_dispatch
from hlo_dispatch.autotune.compare.timing import Time
Time.may_win = lambda *_: False
hlo_dispatch.install()
x = np.ones((200, 333), "float32")
begin = time.perf_counter()
jax.jit(lambda x, w: jax.numpy.tanh(x @ w)).lower(x, x.T.copy()).compile()
done = hlo_dispatch.statistics()
assert (done.measured, done.failures, done.measuring_failures) == (1, 0, 0), done
print(time.perf_counter() - begin)
"""


@dataclass
class Process:
    """One process, living or dead."""

    number: int
    log: Path
    handle: subprocess.Popen[bytes]
    begun: float
    killed: float | None = None
    """When it was killed; seconds since the soak began."""

    def samples(self) -> list[dict[str, Any]]:
        """Samples of the process; a kill may have truncated the last line."""
        found: list[dict[str, Any]] = []
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


@dataclass
class Soak:
    """Record of a soak test."""

    begun: float
    seconds: float
    processes: list[Process] = field(default_factory=list[Process])
    problems: list[str] = field(default_factory=list[str])
    """What must not have happened."""
    fresh_seconds: float = 0.0
    """A fresh process's compile that measures, when all was over."""


def run(
    folder: Path, *, seconds: float, processes: int, threads: int, kill_every: float, seed: int, loops: int
) -> Soak:
    """Run a soak in an empty folder: the store and the processes' files are kept there."""
    environment = os.environ | {
        "HLO_DISPATCH_CACHE_DIR": str(folder / "store"), "JAX_PLATFORMS": "cpu", "HLO_DISPATCH_PROGRESS": "0",
        "HLO_DISPATCH_MEASURE_SECONDS": "10",
    }  # fmt: skip
    soak = Soak(time.time(), seconds)
    chance = random.Random(seed)
    end = soak.begun + seconds

    def start() -> None:
        number = len(soak.processes)
        log = folder / f"process {number}.jsonl"
        own_threads = 1 if loops and number % 2 else threads
        worker = [sys.executable, "-m", "hlo_dispatch.bench.soak.worker"]
        command = [*worker, str(log), str(seed + number), str(own_threads), str(end)]
        command.append(str(loops))
        with (folder / f"process {number}.txt").open("wb") as said:
            handle = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        soak.processes.append(Process(number, log, handle, time.time() - soak.begun))

    for _ in range(processes):
        start()
    next_kill = soak.begun + kill_every
    while time.time() < end:
        time.sleep(0.2)
        if time.time() >= next_kill and next_kill < end:
            next_kill += kill_every
            _kill_one(soak, chance)
            start()
    _wait(soak, folder)
    _look_at_processes(soak)
    if not loops:  # which measure nothing
        _look_at_store(soak, folder, environment)
    return soak


def _kill_one(soak: Soak, chance: random.Random) -> None:
    # The first one is spared: of a process that lives to the end one can say what becomes of its memory.
    living = [process for process in soak.processes[1:] if process.handle.poll() is None]
    if living:
        chosen = chance.choice(living)
        chosen.killed = time.time() - soak.begun
        chosen.handle.send_signal(signal.SIGKILL)
        chosen.handle.wait()


def _wait(soak: Soak, folder: Path) -> None:
    deadline = time.time() + PATIENCE
    for process in soak.processes:
        try:
            status = process.handle.wait(timeout=max(0.1, deadline - time.time()))
        except subprocess.TimeoutExpired:
            process.handle.kill()
            process.handle.wait()
            soak.problems.append(f"process {process.number} does not end")
            continue
        if process.killed is None and status not in (0, 1):
            said = (folder / f"process {process.number}.txt").read_text(errors="replace")[-500:]
            soak.problems.append(f"process {process.number} ended with status {status}: {said}")


def _look_at_processes(soak: Soak) -> None:
    for process in soak.processes:
        samples = process.samples()
        if samples:
            last = samples[-1]
            soak.problems += [f"process {process.number}: {sentence}" for sentence in last["wrong"]]
            for what in ("failures", "measuring_failures"):
                if last[what]:
                    soak.problems.append(f"process {process.number}: {last[what]} {what.replace('_', ' ')}")
        elif process.killed is None:
            soak.problems.append(f"process {process.number} never began")


def _look_at_store(soak: Soak, folder: Path, environment: dict[str, str]) -> None:
    """At what is left."""
    soak.problems += _store_problems(folder / "store")
    done = subprocess.run(
        [sys.executable, "-c", FRESH], env=environment | {"HLO_DISPATCH_MEASURE_SECONDS": "30"}, capture_output=True,
        text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    if done.returncode:
        soak.problems.append(f"a fresh process cannot measure: {done.stderr[-500:]}")
    else:
        soak.fresh_seconds = float(done.stdout.split()[-1])


def _store_problems(store: Path) -> list[str]:
    problems = [f"the store was set aside: {path.name}" for path in store.glob("*.broken-*")]
    try:
        with closing(sqlite3.connect(store / FILE)) as database:
            (answer,) = database.execute("PRAGMA integrity_check").fetchone()
            (count,) = database.execute("SELECT count(*) FROM measurements").fetchone()
        if answer != "ok" or not count:
            problems.append(f"the store has {count} measurements, its check says {answer}")
    except sqlite3.Error as error:
        problems.append(f"the store does not open: {error}")
    for path in store.glob("*.lock"):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                problems.append(f"{path.name} is still locked")
    return problems
