"""Compile time of the pass by program size, beside XLA's compile, and its growth.

    python -m bench.compile_time [--kinds NAME …] [--sizes N …] [--compiled N] [--policies NAME …]

Each program (`bench/sized.py`) is compiled by stock XLA, which gives XLA's seconds and the module that the pass sees;
programs of more than --compiled instructions are only optimized, since XLA takes minutes for their code. Then the pass
runs on the module, tables and libraries loaded, and the best of three counts. "measure" measures nothing here: its
budget is 0. A row's exponent says how the pass grows from the size before: 1 is in step with the program. The exit
status is 1 where the pass takes more than 50 ms and a tenth of XLA's time, or where the largest exponent is above 1.2.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from dataclasses import dataclass, replace

import jax

from hlo_dispatch.api import pipeline
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.sized import KINDS, sized
from hlo_dispatch.driver.measured_pipeline import BUDGET_VARIABLE, with_measurements
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.hook import enabled
from hlo_dispatch.jax_plugin.lowering import compile_afresh
from hlo_dispatch.jax_plugin.optimizing import optimize_stablehlo
from hlo_dispatch.jax_plugin.record import record
from hlo_dispatch.vendor import kernels

SIZES = (100, 300, 1000, 5000, 20000)
MOST = 0.05
"""Seconds that the pass may take,"""
MOST_OF_XLAS = 0.1
"""and how much of XLA's own compile besides."""
MOST_GROWTH = 1.2
_TIMES = 3


@dataclass(frozen=True)
class CompileTimes:
    """One program, compiled."""

    kind: str
    instructions: int
    xla: float | None
    """Seconds of XLA's own compile; None: it was not compiled."""
    seconds: dict[str, float]
    """Policy → seconds of the pass."""

    def growth(self, smaller: CompileTimes) -> dict[str, float]:
        """Policy → the exponent by which the pass's seconds grow with the instructions from the smaller program on."""
        size = math.log(self.instructions / smaller.instructions)
        return {policy: math.log(took / smaller.seconds[policy]) / size for policy, took in self.seconds.items()}

    @property
    def is_quick(self) -> bool:
        """Whether no policy takes too long beside XLA."""
        return self.xla is None or max(self.seconds.values()) <= MOST + MOST_OF_XLAS * self.xla

    def line(self, growth: dict[str, float]) -> str:
        """The table's."""
        xla = "" if self.xla is None else f"{self.xla:.2f}"
        parts = [f"{took:9.3f} {growth.get(policy, math.nan):6.2f}" for policy, took in self.seconds.items()]
        return (
            f"{self.kind:12} {self.instructions:8,} {xla:>8} " + " ".join(parts) + ("" if self.is_quick else "  slow")
        )


def compiled(kind: str, instructions: int, *, with_code: bool) -> tuple[bytes, float | None]:
    """The module that the pass sees of a program of this size, and XLA's seconds for it."""
    function, arguments = sized(kind, instructions)
    lowered = jax.jit(function).lower(*arguments)
    if not with_code:
        return optimize_stablehlo(lowered.as_text()), None
    with enabled(policy="never"), record.captured() as modules:
        begin = time.perf_counter()
        compile_afresh(lowered)
        took = time.perf_counter() - begin
    return max(modules, key=len), took


def measured(kind: str, instructions: int, policies: list[str], *, with_code: bool) -> CompileTimes:
    """Compile a program and run the pass over it under each of the policies."""
    module, xla = compiled(kind, instructions, with_code=with_code)
    seconds = {policy: min(_pass_seconds(module, policy) for _ in range(_TIMES)) for policy in policies}
    return CompileTimes(kind, Module.from_bytes(module).instruction_count, xla, seconds)


def _pass_seconds(module: bytes, policy: str) -> float:
    ready = with_measurements(replace(pipeline((), policy), preprocesses_constants=True))
    begin = time.perf_counter()
    ready.run(module)
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each program; exit 1 where the pass is slow or grows too fast."""
    parser = argparse.ArgumentParser(prog="python -m bench.compile_time", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="NAME")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="N", help="instructions, about")
    parser.add_argument("--compiled", type=int, default=5000, metavar="N", help="the largest that XLA makes code for")
    parser.add_argument("--policies", nargs="+", default=["measure", "always"], metavar="NAME")
    chosen = parser.parse_args()
    print("\n".join(header()))
    columns = " ".join(f"{policy:>9} growth" for policy in chosen.policies)
    print(f"{'kind':12} {'instrs':>8} {'XLA s':>8} {columns}", flush=True)
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HLO_DISPATCH_CACHE_DIR"], os.environ[BUDGET_VARIABLE] = folder, "0"
        kernels.warm_up()
        for kind in chosen.kinds:
            rows: list[CompileTimes] = []
            measured(kind, min(chosen.sizes), chosen.policies, with_code=False)  # what is done once in a process
            for size in sorted(chosen.sizes):
                row = measured(kind, size, chosen.policies, with_code=size <= chosen.compiled)
                growth = row.growth(rows[-1]) if rows else {}
                rows.append(row)
                print(row.line(growth), flush=True)
                is_last = size == max(chosen.sizes)
                is_good &= row.is_quick and not (is_last and max(growth.values(), default=0.0) > MOST_GROWTH)
    raise SystemExit(not is_good)


if __name__ == "__main__":
    main()
