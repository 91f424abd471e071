"""Settling: how many processes finish a program's measurement, what each measures, and how fast its program is.

    python -m bench.settling [PROGRAM …] [--processes N] [--output FILE]

A program is a model (`bench.never_slower`'s names) or a decoder (`decoder-small-unrolled`: a size and a form of
`bench generate`), `:frozen` or `:frozen-bf16` behind its name. It has an empty store, and processes run one after
another: each compiles it stock and with the policy "measure" in its default budget, then times both in turns. A
measurement is new where the store did not have it, and repeated where it had; open is what the budget did not reach or
a later process measures again. A process may compile for as long as the last one did, the budget that it printed (from
the line on, which is written a second into measuring), and one second. The exit status is 1 where one took longer, ran
slower than stock, or where the third or a later one measured anything.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hlo_dispatch.autotune.progress import PATIENCE
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.programs import BenchProgram, model
from hlo_dispatch.bench.worker import clean_environment

PROGRAMS = (
    "inceptionv3", "resnet50", "efficientnetb0", "bert", "unet",
    *(f"decoder-small-{form}{way}" for form in ("scan", "unrolled") for way in ("", ":frozen-bf16")),
)  # fmt: skip
DECODER = re.compile(r"decoder-(\w+)-(\w+)")
POSITION, CAPACITY = 128, 640
"""Of the decoder's token, and of its cache."""
PRINTED = re.compile(r"hlo-dispatch: measuring .*, at most (\d+) s")
"""What a compile prints of its budget."""
MORE = PATIENCE + 1.0
"""Seconds that a compile may take besides that budget, which counts from the line."""
SLOWEST = 0.98
"""Least speed over stock's."""
SETTLED_BY = 2
"""Processes that may measure."""


@dataclass(frozen=True)
class Settling:
    """What one process did."""

    program: str
    process: int
    compile: float
    """Seconds with the policy "measure"."""
    stock_compile: float
    printed: float
    """Seconds that it said it would measure for, at most."""
    measuring: float
    """Seconds in which it measured."""
    new: int
    repeated: int
    open: int
    calls: int
    """Kernel calls of the program."""
    stock: float
    """Seconds of a call of stock's."""
    speed: float
    """Over stock's."""

    def problems(self, settled: float) -> list[str]:
        """What it should not have done; `settled`: seconds of the last process's compile."""
        found = {
            "late": self.compile > settled + self.printed + MORE,
            "slower": self.calls > 0 and self.speed < SLOWEST,
            "not settled": self.process > SETTLED_BY and self.new + self.repeated > 0,
        }
        return [problem for problem, is_so in found.items() if is_so]

    def line(self, problems: Sequence[str]) -> str:
        """The table's."""
        return (
            f"{self.program:36}{self.process:3} {self.compile:8.1f} {self.stock_compile:7.1f} {self.printed:8.0f} "
            f"{self.measuring:9.1f} {self.new:5} {self.repeated:8} {self.open:5} {self.calls:6} "
            f"{self.stock * 1e3:10.2f} {self.speed:6.2f}x  {', '.join(problems)}"
        )


COLUMNS = (
    f"{'program':36}{'':3} {'compile':>8} {'stock':>7} {'printed':>8} {'measuring':>9} {'new':>5} {'repeated':>8} "
    f"{'open':>5} {'calls':>6} {'stock ms':>10} {'speed':>7}"
)


def settled(program: str, processes: int, seconds: float) -> list[Settling]:
    """Run the processes of one program with a store of its own."""
    with tempfile.TemporaryDirectory(prefix="hlo_dispatch_settling_") as store:
        return [_in_a_process(program, number, seconds, store) for number in range(1, processes + 1)]


def _in_a_process(program: str, number: int, seconds: float, store: str) -> Settling:
    environment = clean_environment() | {"HLO_DISPATCH_CACHE_DIR": store}
    for name in ("HLO_DISPATCH_PROGRESS", "JAX_COMPILATION_CACHE_DIR"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "hlo_dispatch.bench.settling", program, "--one", "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program}: {done.stderr.strip().splitlines()[-1:]}")
    printed = sum(float(budget) for budget in PRINTED.findall(done.stderr))
    return Settling(program, number, printed=printed, **json.loads(done.stdout.splitlines()[-1]))


def compile_and_time(name: str, seconds: float) -> dict[str, Any]:
    """Compile one program in this process, stock and measured, and time both; what `Settling` says of it."""
    import hlo_dispatch
    from hlo_dispatch.bench.comparing import blocking, compiled
    from hlo_dispatch.demo.timing import interleaved
    from hlo_dispatch.driver.measured_pipeline import tally

    what, _, way = name.partition(":")
    found = DECODER.fullmatch(what)
    # As `bench generate` has them: weights of f32 are narrowed.
    dtype = "float32" if way else "bfloat16"
    program = model(what) if found is None else decoder(found[1], found[2], dtype)
    stock, stock_compile = compiled(program)
    before = _stored()
    with hlo_dispatch.enabled(policy="measure"):
        run, compile_seconds, calls = _frozen(program, way) if way else _jitted(program)
    after = _stored()
    ways = {"stock": blocking(stock, program.arguments), "measured": run}
    times = {side: timing.median for side, timing in interleaved(ways, seconds=seconds).items()}
    return {
        "compile": compile_seconds,
        "stock_compile": stock_compile,
        "measuring": tally.seconds,
        "new": len(after.keys() - before.keys()),
        "repeated": sum(after[key] != stored for key, stored in before.items()),
        "open": len(tally.unreached - after.keys()) + sum(is_open for _, is_open in after.values()),
        "calls": calls,
        "stock": times["stock"],
        "speed": times["stock"] / times["measured"],
    }


def _stored() -> dict[str, tuple[float, bool]]:
    """Digest → when its measurement was written, and whether a later process measures it again."""
    from hlo_dispatch.autotune.store import Store

    return {entry.region: (entry.written, entry.measured.is_worth_remeasuring) for entry in Store().entries()}


def _jitted(program: BenchProgram) -> tuple[Callable[[], object], float, int]:
    from hlo_dispatch.bench.comparing import blocking, compiled, kernel_calls

    executable, took = compiled(program)
    return blocking(executable, program.arguments), took, kernel_calls(executable.as_text())


def _frozen(program: BenchProgram, way: str) -> tuple[Callable[[], object], float, int]:
    import hlo_dispatch
    from hlo_dispatch.bench.comparing import blocking

    begin = time.perf_counter()
    weights = way.partition("-")[2] or None
    fast = hlo_dispatch.freeze(program.function, *program.weights, weights=weights)
    call = blocking(fast, program.inputs)
    call()
    took = time.perf_counter() - begin
    (made,) = fast.report.programs
    return call, took, len(made.dispatched.dispatched) if made.dispatched is not None else 0


def decoder(size: str, form: str, dtype: str) -> BenchProgram:
    """One token of `bench generate`'s decoder behind POSITION others."""
    import jax.numpy as jnp

    from hlo_dispatch.bench.generate.decoder import empty_cache, parameters, step
    from hlo_dispatch.bench.generate.weights import SIZES

    dimensions = SIZES[size]
    cache = empty_cache(dimensions, form, 1, CAPACITY, dtype)
    arguments = (parameters(dimensions, form, dtype), cache, jnp.ones((1, 1), "int32"), jnp.int32(POSITION))
    return BenchProgram(f"decoder-{size}-{form}", step(dimensions, form), arguments, 1)


def main() -> None:
    """Print a line for each process; exit 1 where one did what it should not."""
    parser = argparse.ArgumentParser(prog="python -m bench.settling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*", default=PROGRAMS, metavar="PROGRAM")
    parser.add_argument("--processes", type=int, default=4, metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, help="of timing, in each process")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON, written after each program")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(compile_and_time(chosen.programs[0], chosen.seconds)))
        return
    print("\n".join([*header(), COLUMNS]), flush=True)
    rows: list[Settling] = []
    is_good = True
    for program in chosen.programs:
        found = settled(program, chosen.processes, chosen.seconds)
        rows += found
        for row in found:
            problems = row.problems(found[-1].compile)
            is_good &= not problems
            print(row.line(problems), flush=True)
        if chosen.output is not None:
            chosen.output.write_text(json.dumps({"machine": header(), "rows": [asdict(r) for r in rows]}, indent=1))
    raise SystemExit(not is_good)


if __name__ == "__main__":
    main()
