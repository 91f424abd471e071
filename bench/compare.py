"""Stock XLA, hlo-dispatch and XLA's own oneDNN flags on whole models: `python -m bench.compare MODEL ...`.

Each round starts one process that times stock and dispatched in turns, and one that runs stock XLA with the
flags; rounds alternate, so a drifting machine hits all three. Ratios are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from hlo_dispatch.demo.models import MODELS
from hlo_dispatch.present import console, duration, make_table, row

from .header import header
from .measure import option

XLA_ONEDNN_FLAGS = "--xla_cpu_experimental_onednn_custom_call=true --xla_cpu_experimental_ynn_fusion_type="

COLUMNS = ("model", "taken", "stock", "ours", "flags", "stock/ours", "flags/ours", "differ", "pass", "again", "compile")
LEGEND = f"""\
taken: regions dispatched of those found; stock: XLA as it comes; ours: dispatched; flags: XLA with
{XLA_ONEDNN_FLAGS}
differ: largest difference from stock over the largest output; compile: stock XLA's
pass: ours, the first of the process (it makes oneDNN's engine); again: ours, once more"""

Round = dict[str, Any]


def child(model: str, arguments: argparse.Namespace, sides: list[str], flags: str = "") -> Round | None:
    """Measure in a process of its own; None if it failed, with the reason on standard error."""
    command = [sys.executable, "-m", "bench.measure", model, "--sides", *sides]
    command += ["--seconds", str(arguments.seconds), "--policy", arguments.policy]
    for name, value in arguments.option:
        command += ["--option", f"{name}={value}"]
    environment = dict(os.environ)
    environment.pop("HLO_DISPATCH", None)
    environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}".strip()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        print(f"{model}{' with ' + flags if flags else ''}: {last[0]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def rounds_of(model: str, arguments: argparse.Namespace) -> list[Round]:
    """All rounds of one model; a round lacks `flags` where this jaxlib does not know them."""
    rounds: list[Round] = []
    with_flags = arguments.flags
    for number in range(arguments.rounds):
        print(f"… {model}, round {number + 1} of {arguments.rounds}", file=sys.stderr)
        both = child(model, arguments, ["stock", "dispatched"])
        if both is None:
            break
        flagged = child(model, arguments, ["stock"], XLA_ONEDNN_FLAGS) if with_flags else None
        with_flags = flagged is not None
        rounds.append(both | ({"flags": flagged["stock"]} if flagged else {}))
    return rounds


def cells(model: str, rounds: list[Round]) -> list[str]:
    """A line of the closing table."""

    def middle(side: str) -> float:
        return statistics.median(one[side]["median"] for one in rounds)

    def ratio(slow: str, fast: str) -> str:
        return f"{statistics.median(one[slow]['median'] / one[fast]['median'] for one in rounds):.2f}x"

    last = rounds[-1]
    flags = all("flags" in one for one in rounds)
    return [
        model,
        f"{last['taken']}/{last['regions']}",
        duration(middle("stock")),
        duration(middle("dispatched")),
        duration(middle("flags")) if flags else "-",
        ratio("stock", "dispatched"),
        ratio("flags", "dispatched") if flags else "-",
        f"{max(one['difference'] for one in rounds):.1e}",
        duration(statistics.median(one["pass"] for one in rounds)),
        duration(statistics.median(one["again"] for one in rounds)),
        duration(statistics.median(one["stock"]["compile"] for one in rounds)),
    ]


def main() -> int:
    """Measure the models named on the command line; 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", choices=list(MODELS), metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--seconds", type=float, default=6.0, help="measuring time of one process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", default="heuristic")
    parser.add_argument("--no-flags", dest="flags", action="store_false", help="leave XLA's own oneDNN flags out")
    parser.add_argument(
        "--option",
        type=option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for the model's builder: dtype=bfloat16",
    )
    arguments = parser.parse_args()
    out = console()
    for line in header():
        out.print(line, markup=False)
    table = make_table(*COLUMNS)
    failed = False
    for model in arguments.models:
        rounds = rounds_of(model, arguments)
        if rounds:
            row(table, *cells(model, rounds))
        failed = failed or len(rounds) < arguments.rounds
    out.print(table)
    out.print(LEGEND, markup=False)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
