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
from hlo_dispatch.reporting.present import duration

from .header import header
from .measure import option

XLA_ONEDNN_FLAGS = "--xla_cpu_experimental_onednn_custom_call=true --xla_cpu_experimental_ynn_fusion_type="

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


def lines(model: str, rounds: list[Round]) -> list[str]:
    """What there is to say about one model."""

    def middle(*path: str) -> float:
        return statistics.median(_dig(one, path) for one in rounds)

    def ratio(slow: str) -> str:
        return f"{statistics.median(one[slow]['median'] / one['dispatched']['median'] for one in rounds):.2f}x"

    last = rounds[-1]
    times = f"stock {duration(middle('stock', 'median'))}, dispatched {duration(middle('dispatched', 'median'))}"
    speed = f"{ratio('stock')} over stock"
    if all("flags" in one for one in rounds):
        times += f", XLA's oneDNN flags {duration(middle('flags', 'median'))}"
        speed += f", {ratio('flags')} over XLA's oneDNN flags"
    passes = f"{duration(middle('pass'))} for the first module of a process, {duration(middle('again'))} again"
    return [
        f"{model}: {last['taken']} of {last['regions']} regions dispatched, "
        f"largest relative difference {max(one['difference'] for one in rounds):.1e}",
        f"  {times}",
        f"  speed-up {speed}",
        f"  compiling: stock {duration(middle('stock', 'compile'))}; our pass {passes}",
    ]


def _dig(value: Any, path: tuple[str, ...]) -> float:
    for key in path:
        value = value[key]
    return value


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
    print("\n".join(header()), flush=True)
    failed = False
    for model in arguments.models:
        rounds = rounds_of(model, arguments)
        failed = failed or len(rounds) < arguments.rounds
        if rounds:
            print("\n".join(["", *lines(model, rounds)]), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
