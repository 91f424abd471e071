"""Frozen model against the same model dispatched but not frozen: speed, results, memory."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from hlo_dispatch.bench.comparing import NO_LIMIT, blocking, compiled, kernel_calls, time_all
from hlo_dispatch.bench.programs import BenchProgram, model
from hlo_dispatch.bench.verdict import DONATED, FROZEN, MOST_MEMORY, SETTLED, STOCK, Result

FLOAT32 = 1e-4
"""How far results may be apart, over the largest: rounding grows with depth, and no further than this; but for a model
that moves its results farther when each of its weights is rounded once (T5, whose scores are not scaled)."""
HALF = 1.5
"""How much farther from the results in f32 those of a frozen model in half precision may be than the unfrozen one's."""
_HALF_SUFFIX = "-bf16"


def compare(name: str, seconds: float) -> Result:
    """Time stock, dispatched and frozen in turns, `seconds` long; compare results; have processes say their peaks."""
    begin = time.perf_counter()
    result = Result("frozen", name)
    _compare_times(result, model(name), seconds)
    result.peak = _peaks(name)
    result.spent = time.perf_counter() - begin
    return result


def _compare_times(result: Result, program: BenchProgram, seconds: float) -> None:
    import jax

    import hlo_dispatch

    # Both as later compiles leave them.
    os.environ["HLO_DISPATCH_MEASURE_SECONDS"] = NO_LIMIT
    stock, result.compile_more = compiled(program)
    with hlo_dispatch.enabled(policy="measure"):
        unfrozen, _ = compiled(program)
        fast = hlo_dispatch.freeze(program.function, *program.weights)
        begin = time.perf_counter()
        jax.block_until_ready(fast(*program.inputs))
        result.compile_more = time.perf_counter() - begin - result.compile_more
    (made,) = fast.report.programs
    result.calls = {
        SETTLED: kernel_calls(unfrozen.as_text()),
        FROZEN: len(made.dispatched.dispatched) if made.dispatched is not None else 0,
    }
    result.is_unchanged = not any(result.calls.values()) and not made.prepared
    ways = {
        STOCK: blocking(stock, program.arguments),
        SETTLED: blocking(unfrozen, program.arguments),
        FROZEN: blocking(fast, program.inputs),
    }
    result.difference, result.allowed = difference(program, ways[SETTLED](), ways[FROZEN]())
    time_all(result, ways, seconds)


def difference(program: BenchProgram, unfrozen: Any, frozen: Any) -> tuple[float, float]:
    """Difference of the results, and the allowed one."""
    import jax

    from hlo_dispatch.demo.compare import relative_difference

    if not program.name.endswith(_HALF_SUFFIX):
        found = relative_difference(unfrozen, frozen)
        return found, FLOAT32 if found <= FLOAT32 else max(FLOAT32, _moved_by_rounding(program))
    # Two roundings of one number need not be near each other; both have to be near the number.
    exact = model(program.name.removesuffix(_HALF_SUFFIX))
    wanted = jax.jit(exact.function)(*exact.arguments)
    return relative_difference(wanted, frozen), HALF * relative_difference(wanted, unfrozen)


def _moved_by_rounding(program: BenchProgram) -> float:
    """Change of stock's results when every f32 weight moves to an adjacent value, up or down."""
    import jax
    import jax.numpy as jnp

    from hlo_dispatch.demo.compare import relative_difference

    def moved(weight: jax.Array) -> jax.Array:
        if weight.dtype != jnp.float32:
            return weight
        ways = jax.random.rademacher(jax.random.key(weight.size), weight.shape, jnp.float32)
        return weight * (1 + ways * jnp.finfo(jnp.float32).eps)

    stock = jax.jit(program.function)
    return relative_difference(stock(*program.arguments), stock(*jax.tree.map(moved, program.weights), *program.inputs))


def _peaks(name: str) -> dict[str, int]:
    """The unfrozen and the frozen one's; above the limit twice more, and the middle counts."""
    runs = [{way: _peak(name, way) for way in (SETTLED, FROZEN, DONATED)}]
    if runs[0][DONATED] > MOST_MEMORY * runs[0][SETTLED]:
        # XLA compiles in several threads, which does not leave the same behind every time.
        runs += [{way: _peak(name, way) for way in (SETTLED, FROZEN, DONATED)} for _ in range(2)]
    return sorted(runs, key=lambda run: run[DONATED] / run[SETTLED])[len(runs) // 2]


def _peak(name: str, way: str) -> int:
    """Most bytes resident in a process that makes three calls, with what this one has measured."""
    command = [sys.executable, "-m", "hlo_dispatch.bench.frozen", name, way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"memory of {name}, {way}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Say this process's peak, with the model of the given name run in the given way; weights are held or donated."""
    import jax

    import hlo_dispatch
    from hlo_dispatch.bench.models.process import forget_peak, status

    name, way = sys.argv[1:]
    program = model(name)
    # Random numbers may have taken more than the model does.
    forget_peak()
    hlo_dispatch.install(policy="stored")
    if way in (FROZEN, DONATED):
        frozen = hlo_dispatch.freeze(program.function, *program.weights, donate=way == DONATED)
        call = blocking(frozen, program.inputs)
    else:
        call = blocking(jax.jit(program.function), program.arguments)
    for _ in range(3):
        call()
    print(json.dumps(status("VmHWM")))


if __name__ == "__main__":
    main()
