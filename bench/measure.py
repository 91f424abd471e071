"""One measurement in a process of its own: `python -m bench.measure MODEL --sides stock dispatched`.

Prints one JSON object on standard output. Called by `compare.py`, because XLA's flags hold for a whole
process and thread pools of one side must not live in the other's.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from hlo_dispatch.demo.compare import Compiled, compile_dispatched, compile_stock, relative_difference
from hlo_dispatch.demo.models import Workload, find
from hlo_dispatch.demo.timing import interleaved

SIDES = ("stock", "dispatched")


def option(text: str) -> tuple[str, Any]:
    """`tokens=64` as ("tokens", 64); anything that is not a whole number stays text."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE")
    return name, int(value) if value.isdigit() else value


def measure(workload: Workload, sides: list[str], seconds: float, policy: str) -> dict[str, Any]:
    """Compile each side, check them against each other, time them in turns."""
    import jax

    import hlo_dispatch

    hlo_dispatch.uninstall()
    jax.config.update("jax_enable_compilation_cache", False)
    compiled: dict[str, Compiled] = {}
    for side in sides:
        compiled[side] = compile_stock(workload) if side == "stock" else compile_dispatched(workload, policy=policy)
    times = interleaved(compiled, seconds=seconds)
    answer: dict[str, Any] = {
        side: {"median": times[side].median, "spread": times[side].spread, "compile": compiled[side].seconds}
        for side in sides
    }
    if "dispatched" in compiled:
        reports = compiled["dispatched"].reports
        answer["pass"] = sum(report.seconds for report in reports)
        again = compile_dispatched(workload, policy=policy).reports
        answer["again"] = sum(report.seconds for report in again)
        answer["regions"] = sum(len(report.candidates) for report in reports)
        answer["taken"] = sum(len(report.dispatched) for report in reports)
    if len(compiled) == len(SIDES):
        answer["difference"] = relative_difference(compiled["stock"](), compiled["dispatched"]())
    return answer


def main() -> None:
    """Measure one model and print the result."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure", description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--policy", default="heuristic")
    parser.add_argument("--option", type=option, action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    workload = find(arguments.model).workload(**dict(arguments.option))
    print(json.dumps(measure(workload, arguments.sides, arguments.seconds, arguments.policy)))


if __name__ == "__main__":
    main()
