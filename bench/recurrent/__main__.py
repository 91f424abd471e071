"""Recurrent layers: `python -m bench.recurrent [--cells lstm512 gru512] [--batches 1 8] [--output FILE]`.

LSTMs of 512 and 1024 and GRUs of 512 (`resetgru` resets first), in a process for each library, which take turns: JAX
(stock, jitted, frozen, and a step of training), PyTorch, OpenVINO. Who is not installed is named. Each case is printed
as it comes, within a time limit of its own, and tables at the end.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.recurrent.layers import GATES, SPELLINGS, RecurrentCase
from hlo_dispatch.bench.recurrent.process import LIBRARIES
from hlo_dispatch.bench.result_files import Results
from hlo_dispatch.bench.worker import Worker, WorkerFailed
from hlo_dispatch.process.machine import this_machine
from hlo_dispatch.report.terminal import console, make_table, row

FORWARD = ("stock", "jit", "frozen", "PyTorch", "OpenVINO")
TRAINING = ("stock training", "jit training", "PyTorch training")
RATIOS = {
    FORWARD: (("jit", "stock"), ("frozen", "stock"), ("frozen", "PyTorch"), ("frozen", "OpenVINO")),
    TRAINING: (("jit training", "stock training"), ("jit training", "PyTorch training")),
}
"""Ways of a table → pairs: the time of the second over that of the first."""
FAR = {"f32": 1e-3, "bf16": 3e-2}
"""How far the mean size of results may be from stock's, relatively."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.recurrent", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", nargs="+", default=["lstm512", "lstm1024", "gru512", "resetgru512"], metavar="CELL")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--lengths", nargs="+", type=int, default=[64, 256])
    computed = list(FAR) if this_machine().has_bf16_arithmetic else ["f32"]
    parser.add_argument("--dtypes", nargs="+", choices=FAR, default=computed, help="else what the processor computes")
    parser.add_argument("--spelling", choices=SPELLINGS, default=SPELLINGS[0])
    parser.add_argument("--ways", nargs="+", choices=FORWARD + TRAINING, default=FORWARD + TRAINING)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each library in a turn")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a case: no way or turn begins later")
    parser.add_argument("--policy", default="measure")
    parser.add_argument("--output", type=Path, help="add results to this file")
    chosen = parser.parse_args()
    print("\n".join(header()), flush=True)
    results = Results.open(chosen.output, "recurrent") if chosen.output else None
    workers = {name: Worker("hlo_dispatch.bench.recurrent.process", name) for name in _libraries(chosen.ways)}
    entries: list[dict[str, Any]] = []
    try:
        for case in _cases(chosen):
            print(f"… {case.name}", file=sys.stderr, flush=True)
            entries.append(_measured(case, workers, chosen))
            print(_line(entries[-1]), flush=True)
            if results is not None:
                results.put(entries[-1])
    finally:
        for worker in workers.values():
            worker.close()
        _print(entries)


def _libraries(ways: Sequence[str]) -> list[str]:
    return [name for name, own in LIBRARIES.items() if set(own) & set(ways)]


def _cases(chosen: argparse.Namespace) -> list[RecurrentCase]:
    cells: list[tuple[str, int]] = []
    for word in chosen.cells:
        found = re.fullmatch(r"([a-z]+)(\d+)", word)
        if found is None or found[1] not in GATES:
            raise SystemExit(f"bench.recurrent: {word!r} is no cell: expected {' or '.join(GATES)} and a size")
        cells.append((found[1], int(found[2])))
    return [
        RecurrentCase(cell, size, batch, length, dtype, chosen.spelling)
        for cell, size in cells
        for dtype in chosen.dtypes
        for length in chosen.lengths
        for batch in chosen.batches
    ]


def _measured(case: RecurrentCase, workers: dict[str, Worker], chosen: argparse.Namespace) -> dict[str, Any]:
    """Way → least seconds of each turn; what went wrong, by library or way."""
    turns: dict[str, list[float]] = {}
    problems: dict[str, str] = {}
    sizes: dict[str, float] = {}
    end = time.monotonic() + chosen.limit
    for library, worker in workers.items():
        wanted = [way for way in LIBRARIES[library] if way in chosen.ways]
        left = end - time.monotonic()
        try:
            found = worker.ask({"case": asdict(case), "ways": wanted, "policy": chosen.policy, "limit": left})
        except WorkerFailed as error:
            problems[library] = str(error)
            continue
        sizes |= found
        problems |= {way: f"not begun within {chosen.limit:.0f} s" for way in wanted if way not in found}
    for turn in range(chosen.turns):
        if turn and time.monotonic() > end:
            break
        for library in list(workers)[:: 1 if turn % 2 == 0 else -1]:
            if library not in problems:
                times = workers[library].ask({"seconds": chosen.seconds})
                for way, samples in times.items():
                    turns.setdefault(way, []).append(min(samples))
    stock = sizes.get("stock")
    for way, size in sizes.items():
        if stock and "training" not in way and not abs(size / stock - 1) <= FAR[case.dtype]:
            problems[way] = f"results have a mean size of {size:.4g}, stock's of {stock:.4g}"
    return {"name": case.name, "turns": turns, "problems": problems}


def _line(entry: dict[str, Any]) -> str:
    """One case as it comes: the tables follow all of them, and a long run may be ended before."""
    turns = entry["turns"]
    times = [f"{way} {1e3 * min(samples):.2f} ms" for way, samples in turns.items() if samples]
    ratios = [f"{ours} over {peer} {_ratio(turns, ours, peer)}" for pairs in RATIOS.values() for ours, peer in pairs]
    return f"{entry['name']}: {', '.join([*times, *(text for text in ratios if text.endswith(')'))])}"


def _print(entries: Sequence[dict[str, Any]]) -> None:
    target = console()
    for ways, pairs in RATIOS.items():
        shown = [way for way in ways if any(way in entry["turns"] for entry in entries)]
        known = [(ours, peer) for ours, peer in pairs if ours in shown and peer in shown]
        if not shown:
            continue
        named = [f"{ours.removesuffix(' training')} over {peer.removesuffix(' training')}" for ours, peer in known]
        table = make_table("name", *(f"{way}, ms" for way in shown), *named)
        for column in table.columns[1:]:
            column.justify = "right"
        for entry in entries:
            turns = entry["turns"]
            times = [f"{1e3 * min(turns[way]):.2f}" if way in turns else "" for way in shown]
            row(table, entry["name"], *times, *(_ratio(turns, *pair) for pair in known))
        target.print(table)
        target.print()
    print("Least times, and ratios of them; in parentheses ratios of the medians over turns.")
    for problem in dict.fromkeys(text for entry in entries for text in _problems(entry)):
        print(problem)


def _ratio(turns: dict[str, list[float]], ours: str, peer: str) -> str:
    if ours not in turns or peer not in turns:
        return ""
    least, median = (take(turns[peer]) / take(turns[ours]) for take in (min, statistics.median))
    return f"{least:.2f}x ({median:.2f}x)"


def _problems(entry: dict[str, Any]) -> list[str]:
    missing = {name for name, text in entry["problems"].items() if text.startswith("ModuleNotFoundError")}
    return [f"{name} is not installed: pip install {name}" for name in sorted(missing)] + [
        f"{entry['name']}, {name}: {text}" for name, text in entry["problems"].items() if name not in missing
    ]


if __name__ == "__main__":
    main()
