"""Process of one peer on one model, which measures on request: a JSON object in each line."""

# pyright: basic
from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hlo_dispatch.bench.models.catalogue import PEERS, Job
from hlo_dispatch.bench.models.peers import Call, prepare
from hlo_dispatch.process.parent import end_with_parent

FEWEST, MOST = 3, 300


Say = Callable[[dict[str, Any]], None]


def measure(peer: str, job: Job, options: dict[str, int], policy: str, turns: Iterable[str], say: Say) -> None:
    """Compile and call once; then measure for as long as each of the turns says; at last say what memory it took.

    Args:
        turns: seconds, as text.
        say: is given the seconds of compiling and of the first call; those of the calls of each turn; bytes, from
            compiling on.
    """
    compile, said = prepare(peer, job, options, policy)
    resident = forget_peak()
    begin = time.perf_counter()
    call = compile()
    compiled = time.perf_counter()
    call()
    first = time.perf_counter()
    say(said | {"compile": compiled - begin, "first_call": first - compiled})
    for turn in turns:
        say({"samples": repeat(call, float(turn))})
    say({"peak_memory": status("VmHWM"), "memory_before": resident})


def repeat(call: Call, seconds: float) -> list[float]:
    """Times of single calls for so long; never fewer than three, after one that does not count."""
    call()
    samples: list[float] = []
    start = time.perf_counter()
    while len(samples) < FEWEST or (time.perf_counter() - start < seconds and len(samples) < MOST):
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    return samples


def forget_peak() -> int:
    """Begin counting the largest memory of this process anew; bytes that are resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(key: str) -> int:
    """A size of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Measure for as many seconds as each line of standard input says, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("model")
    parser.add_argument("dtype")
    parser.add_argument("batch", type=int)
    parser.add_argument("--policy", default="measure")
    parser.add_argument("--options", type=json.loads, default={})
    given = parser.parse_args()
    end_with_parent()
    # Libraries print to standard output what they like; only the answer may come out.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    job = Job(given.model, given.dtype, given.batch)

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    measure(given.peer, job, given.options, given.policy, sys.stdin, say)
    # oneDNN's, OpenVINO's and PyTorch's threads need not agree on who ends first.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
