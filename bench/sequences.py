"""Call groups on and off for whole models, jitted and frozen: `python -m bench.sequences resnet50 mobilenetv2`.

Each is compiled in one process with the policy "measure", no limit of time and an empty store, and all are timed in
turns with stock XLA. Results with call groups are compared with those without.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from contextlib import nullcontext
from typing import Any

import jax
import rich
from rich.table import Table

import hlo_dispatch
from hlo_dispatch.bench.comparing import NO_LIMIT, Ways, blocking, compiled
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.programs import model
from hlo_dispatch.demo.compare import relative_difference
from hlo_dispatch.demo.timing import interleaved
from hlo_dispatch.process.environment_switches import SEQUENCES_VARIABLE

STOCK, GROUPED, UNGROUPED, FROZEN_GROUPED, FROZEN_UNGROUPED = (
    "stock",
    "grouped",
    "ungrouped",
    "frozen, grouped",
    "frozen, ungrouped",
)


def made(name: str) -> Ways:
    """Executables of a model in all ways."""
    program = model(name)
    ways: dict[str, Any] = {}
    for way, switch in ((STOCK, ""), (UNGROUPED, "0"), (GROUPED, "1")):
        os.environ[SEQUENCES_VARIABLE] = switch
        with nullcontext() if way == STOCK else hlo_dispatch.enabled(policy="measure"):
            executable, _ = compiled(program)
        ways[way] = blocking(executable, program.arguments)
    for way, switch in ((FROZEN_UNGROUPED, "0"), (FROZEN_GROUPED, "1")):
        os.environ[SEQUENCES_VARIABLE] = switch
        with hlo_dispatch.enabled(policy="measure"):
            frozen = hlo_dispatch.freeze(program.function, *program.weights)
            jax.block_until_ready(frozen(*program.inputs))
        ways[way] = blocking(frozen, program.inputs)
    return ways


def row(name: str, seconds: float) -> tuple[str, ...]:
    """Milliseconds, speedup over ungrouped calls, and the difference of the results."""
    ways = made(name)
    differs = max(relative_difference(ways[ungrouped](), ways[grouped]()) for grouped, ungrouped in _PAIRS)
    times = {way: timing.median for way, timing in interleaved(ways, seconds=seconds).items()}
    ratios = [times[ungrouped] / times[grouped] for grouped, ungrouped in _PAIRS]
    milliseconds = [f"{1e3 * times[way]:.3g}" for way in (STOCK, *itertools.chain(*_PAIRS))]
    return (name, *milliseconds, *(f"{ratio:.2f}x" for ratio in ratios), f"{differs:.1e}")


_PAIRS = ((GROUPED, UNGROUPED), (FROZEN_GROUPED, FROZEN_UNGROUPED))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.sequences", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=3.0, help="of timing each model")
    chosen = parser.parse_args()
    print("\n".join(header()), flush=True)
    ways = ("stock, ms", "grouped", "ungrouped", "frozen, grouped", "frozen, ungrouped")
    table = Table("model", *ways, "grouped over ungrouped", "the same, frozen", "results differ by")
    before = os.environ.copy()
    for name in chosen.models:
        with tempfile.TemporaryDirectory() as store:
            os.environ.update({"HLO_DISPATCH_CACHE_DIR": store, "HLO_DISPATCH_MEASURE_SECONDS": NO_LIMIT})
            table.add_row(*row(name, chosen.seconds))
        jax.clear_caches()
        os.environ.clear()
        os.environ.update(before)
    rich.print(table)


if __name__ == "__main__":
    main()
