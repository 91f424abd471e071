"""Models with sequences and without, as a jitted function and frozen: `python -m bench.sequences resnet50 mobilenetv2`.

Each is compiled in one process with the policy "measure", no limit of time and an empty store, and all are timed in
turns with stock XLA. Results with sequences are compared with those without.
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

STOCK, JOINED, APART, FROZEN_JOINED, FROZEN_APART = "stock", "joined", "apart", "frozen, joined", "frozen, apart"


def made(name: str) -> Ways:
    """Calls of a model in all ways."""
    program = model(name)
    ways: dict[str, Any] = {}
    for way, joins in ((STOCK, ""), (APART, "0"), (JOINED, "1")):
        os.environ[SEQUENCES_VARIABLE] = joins
        with nullcontext() if way == STOCK else hlo_dispatch.enabled(policy="measure"):
            executable, _ = compiled(program)
        ways[way] = blocking(executable, program.arguments)
    for way, joins in ((FROZEN_APART, "0"), (FROZEN_JOINED, "1")):
        os.environ[SEQUENCES_VARIABLE] = joins
        with hlo_dispatch.enabled(policy="measure"):
            frozen = hlo_dispatch.freeze(program.function, *program.weights)
            jax.block_until_ready(frozen(*program.inputs))
        ways[way] = blocking(frozen, program.inputs)
    return ways


def row(name: str, seconds: float) -> tuple[str, ...]:
    """Milliseconds, how many times as fast as apart, and how far results differ."""
    ways = made(name)
    differs = max(relative_difference(ways[apart](), ways[joined]()) for joined, apart in _PAIRS)
    times = {way: timing.median for way, timing in interleaved(ways, seconds=seconds).items()}
    ratios = [times[apart] / times[joined] for joined, apart in _PAIRS]
    milliseconds = [f"{1e3 * times[way]:.3g}" for way in (STOCK, *itertools.chain(*_PAIRS))]
    return (name, *milliseconds, *(f"{ratio:.2f}x" for ratio in ratios), f"{differs:.1e}")


_PAIRS = ((JOINED, APART), (FROZEN_JOINED, FROZEN_APART))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.sequences", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=3.0, help="of timing each model")
    chosen = parser.parse_args()
    print("\n".join(header()), flush=True)
    ways = ("stock, ms", "joined", "apart", "frozen, joined", "frozen, apart")
    table = Table("model", *ways, "joined over apart", "the same, frozen", "results differ by")
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
