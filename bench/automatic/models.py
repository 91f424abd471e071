"""Whole models under `hlo_dispatch.jit` beside `freeze`, call by call in one process.

    python -m bench.automatic.models [MODEL …] [--dtype f32 bf16] [--policy heuristic] [--seconds 4] [--small]

`bench models` times a process for each peer, which may get two threads of one core where another had two cores. Here,
once the trial of the automatic program has ended, both take turns of one call each, on inputs that change from call to
call, in a process for each model. Both are dispatched by the cost model, since either is another program to measure.
Prints the least and the median time of both, and the automatic program's speed over the frozen one's. The exit status
is 1 where both its least and its median are below 0.97. Where nothing was frozen the line says why.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.models.catalogue import DTYPES, MODELS, Job
from hlo_dispatch.bench.models.peers import Call, prepare
from hlo_dispatch.bench.worker import clean_environment

LEAST_SPEED = 0.97
WAYS = ("ours-auto", "ours-frozen")
_FEWEST = 10
"""Calls of each way, however long one takes."""


def measured(model: str, dtype: str, policy: str, seconds: float, *, is_small: bool) -> dict[str, list[float]]:
    """Seconds of the calls of each way; measures in this process. `seconds`: of measuring, in all."""
    options = dict(MODELS[model].small) if is_small else {}
    calls: dict[str, Call] = {}
    said: dict[str, dict[str, Any]] = {}
    for way in reversed(WAYS):
        compile_it, said[way] = prepare(way, Job(model, dtype, 1), options, policy)
        calls[way] = compile_it()
    print(said["ours-auto"]["note"], file=sys.stderr)
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    end = time.perf_counter() + seconds
    turn = 0
    while time.perf_counter() < end or turn < _FEWEST:
        for way in WAYS[:: 1 if turn % 2 else -1]:
            begin = time.perf_counter()
            calls[way]()
            took[way].append(time.perf_counter() - begin)
        turn += 1
    return took


def line(model: str, dtype: str, took: dict[str, list[float]]) -> tuple[str, bool]:
    """The table's, and whether the automatic program is fast enough."""
    automatic, frozen = (took[way] for way in WAYS)
    least, median = (of(frozen) / of(automatic) for of in (min, statistics.median))
    times = " ".join(f"{of(side) * 1e3:10.3f}" for side in (automatic, frozen) for of in (min, statistics.median))
    return f"{model:16} {dtype:5} {times} {least:8.3f} {median:8.3f} {len(automatic):6}", max(
        least, median
    ) >= LEAST_SPEED


def main() -> None:
    """Print a line for each model; exit 1 where one is slower under `hlo_dispatch.jit`."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.automatic.models", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], metavar="MODEL", help="else all")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--policy", default="heuristic")
    parser.add_argument("--seconds", type=float, default=4.0, help="of measuring, for each line")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that everything runs")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        (model,), (dtype,) = chosen.models, chosen.dtype
        print(json.dumps(measured(model, dtype, chosen.policy, chosen.seconds, is_small=chosen.small)))
        return
    print("\n".join(header()))
    columns = " ".join(f"{f'{way} {of}':>10}" for way in ("auto", "frozen") for of in ("min", "median"))
    print(f"{'model':16} {'dtype':5} {columns} {'least':>8} {'median':>8} {'calls':>6}", flush=True)
    is_good = True
    for model in chosen.models or MODELS:
        for dtype in chosen.dtype:
            arguments = [model, "--dtype", dtype, "--policy", chosen.policy, "--seconds", str(chosen.seconds), "--one"]
            command = [
                sys.executable,
                "-m",
                "bench.automatic.models",
                *arguments,
                *(["--small"] if chosen.small else []),
            ]
            done = subprocess.run(
                command,
                env=clean_environment(),
                cwd=Path(__file__).parents[2],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                print(f"{model:16} {dtype:5} failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
                is_good = False
                continue
            text, is_fast = line(model, dtype, json.loads(done.stdout.splitlines()[-1]))
            (note,) = [said for said in done.stderr.splitlines() if said.startswith("compiling goes on")]
            why = "" if "frozen (" in note else f"  {note}"
            print(text + why + ("" if is_fast else "  !"), flush=True)
            is_good &= is_fast
    raise SystemExit(not is_good)


if __name__ == "__main__":
    main()
