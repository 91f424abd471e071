"""One process of the soak: threads that compile, run, check and drop programs until they are told to stop.

Every second it appends a line to its own file, so that a kill loses nothing: `python -m bench.soak.worker
FILE SEED THREADS END LOOPS`, END in seconds since 1970, LOOPS 0 or the calls of each loop.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np

import hlo_dispatch
from hlo_dispatch.bench.soak import loops, programs

RUNS = 2
"""Of each executable, before it is dropped."""
CLEARED_EVERY = 200
"""Programs: JAX itself keeps what it traced."""
LONGEST_STEP = 180.0
"""Seconds: who needs longer for one program than this has come to a stop."""


class _Work:
    def __init__(self, seed: int, end: float, turns: int, threads: int) -> None:
        self.seed, self.end, self.turns = seed, end, turns
        self.begun = [time.time()] * threads
        self.lock = threading.Lock()
        self.done = 0
        self.wrong: list[str] = []

    def run(self, thread: int) -> None:
        """One thread's."""
        generator = np.random.default_rng((self.seed, thread))
        number = thread
        while time.time() < self.end:
            try:
                self.begun[thread] = time.time()
                problem = self._tried(number, generator)
            except Exception as error:
                problem = f"{type(error).__name__}: {str(error)[:300]}"
            number += 1
            with self.lock:
                self.done += 1
                if problem:
                    self.wrong.append(problem)
                is_due = self.done % CLEARED_EVERY == 0
            if is_due:
                jax.clear_caches()

    def _tried(self, number: int, generator: np.random.Generator) -> str:
        """Problem with one program; empty: none."""
        program = loops.make(number, generator, self.turns) if self.turns else programs.make(number, generator)
        function = program.function
        compiled = jax.jit(lambda *inputs: function(*inputs)).lower(*program.inputs).compile()
        for _ in range(RUNS):
            difference = program.difference(compiled(*program.inputs))
            if difference > program.tolerance:
                shapes = ", ".join(str(value.shape) for value in program.inputs)
                return f"{program.name} of {shapes} is wrong by {difference:.2g}"
        return ""

    def has_stopped(self) -> bool:
        """Whether a thread works on one program for so long that it will not end."""
        return time.time() - min(self.begun) > LONGEST_STEP and time.time() < self.end


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def allocated() -> int:
    """Bytes that malloc has given out; 0 where the C library does not say.

    Resident memory has free blocks as well, which 16 threads leave in as many heaps.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = _Heaps
    heaps = library.mallinfo2()
    return heaps.uordblks + heaps.hblkhd


class _Heaps(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def main() -> int:
    """Work until the end; 0: nothing was wrong, 1: something was, 3: a thread has come to a stop."""
    path, seed, threads, end = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    turns = int(sys.argv[5])
    hlo_dispatch.install(policy="always" if turns else "measure")
    work = _Work(seed, end, turns, threads)
    workers = [threading.Thread(target=work.run, args=(number,), daemon=True) for number in range(threads)]
    for worker in workers:
        worker.start()
    with path.open("a", buffering=1) as file:
        while any(worker.is_alive() for worker in workers) and time.time() < end + LONGEST_STEP:
            _tell(file, work)
            if work.has_stopped():
                break
            time.sleep(1.0)
        _tell(file, work)
    if any(worker.is_alive() for worker in workers):
        faulthandler.dump_traceback()
        os._exit(3)
    return 1 if work.wrong else 0


def _tell(file, work: _Work) -> None:
    seen = hlo_dispatch.statistics()
    with work.lock:
        wrong, done = list(work.wrong), work.done
    told = {
        "time": time.time(), "resident": resident(), "allocated": allocated(), "done": done, "wrong": wrong,
        "modules": seen.modules,
        "rewritten": seen.rewritten, "measured": seen.measured,
        "failures": seen.failures, "measuring_failures": seen.measuring_failures,
    }  # fmt: skip
    file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    sys.exit(main())
