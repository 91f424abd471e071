"""Products of few rows with weights of eight bits: `python -m bench.narrow [--rows 1 4 16] [--output FILE]`.

In turns, in one process: XLA's product with f32 weights, XLA's with narrow ones (`x @ (w.astype(x.dtype) * scale)`),
and ours with the same, in both orders of the weights. Warm: the same weights in every call. Cold: each call takes the
next of as many copies as do not fit into the caches, as a model's layers do.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich
from rich.table import Table

import hlo_dispatch
from hlo_dispatch.demo.timing import interleaved

from .header import header

SHAPES = ((768, 3072), (4096, 4096))
"""What is summed up, and columns: a feed-forward layer of BERT's, a projection of a language model's."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CACHE_IF_UNKNOWN = 64 << 20
KERNEL = "own.narrow_product"


def cache_bytes() -> int:
    """What the processor's largest cache holds."""
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    return max((int(size.removesuffix("K")) << 10 for size in sizes if size.endswith("K")), default=CACHE_IF_UNKNOWN)


def plain(x: Any, w: Any) -> Any:
    return x @ w


def narrow(x: Any, w: Any, scale: Any) -> Any:
    return x @ (w.astype(x.dtype) * scale)


def transposed(x: Any, w: Any, scale: Any) -> Any:
    return x @ (w.astype(x.dtype) * scale[:, None]).T


def in_turn(function: Callable[..., Any], x: Any, weights: Sequence[tuple[Any, ...]]) -> Callable[[], object]:
    """The function of x and the next weights."""
    numbers = itertools.cycle(range(len(weights)))
    return lambda: jax.block_until_ready(function(x, *weights[next(numbers)]))


def copies(made: Callable[[], Any], *, cold: bool) -> list[Any]:
    """As many as do not fit into the caches; one to stay there."""
    first = made()
    count = 2 * cache_bytes() // first.nbytes + 2 if cold else 1
    return [first, *(made() for _ in range(count - 1))]


def measured(rows: int, inner: int, columns: int, *, cold: bool, seconds: float) -> dict[str, float]:
    """Median seconds of each side."""
    random = np.random.default_rng(0)
    x = jnp.asarray(random.standard_normal((rows, inner)), "float32")
    scale = jnp.asarray(random.random(columns) / 100 + 1e-3, "float32")
    integers = random.integers(-127, 128, (inner, columns), np.int8)
    # Copies of NumPy's, each in memory of its own.
    wide = [(w,) for w in copies(lambda: jnp.array(integers * np.float32(0.01)), cold=cold)]
    by_row = [(w, scale) for w in copies(lambda: jnp.array(integers), cold=cold)]
    by_column = [(w, scale) for w in copies(lambda: jnp.array(integers.T), cold=cold)]
    with hlo_dispatch.enabled(policy="never"):
        f32 = jax.jit(plain).lower(x, *wide[0]).compile()
        stock = jax.jit(narrow).lower(x, *by_row[0]).compile()
    with hlo_dispatch.enabled(policy="always"):
        ours = jax.jit(narrow).lower(x, *by_row[0]).compile()
        ours_transposed = jax.jit(transposed).lower(x, *by_column[0]).compile()
    for executable in (ours, ours_transposed):
        assert KERNEL in executable.as_text(), "it was not dispatched"
    exact = np.asarray(x, "float64") @ (integers * np.asarray(scale, "float64"))
    for got in (ours(x, *by_row[0]), ours_transposed(x, *by_column[0])):
        assert np.abs(np.asarray(got) - exact).max() <= 1e-5 * np.abs(exact).max(), "it is wrong"
    calls = {
        "f32": in_turn(f32, x, wide),
        "stock": in_turn(stock, x, by_row),
        "ours": in_turn(ours, x, by_row),
        "ours, (out, in)": in_turn(ours_transposed, x, by_column),
    }
    return {name: timing.median for name, timing in interleaved(calls, seconds=seconds).items()}


def main() -> None:
    """Measure, print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.narrow", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args()
    lines = header()
    print(*lines, sep="\n")
    table = Table(
        "rows", "weights", "caches", "f32", "stock", "ours", "(out, in)", "f32/ours", "stock/ours", title="µs"
    )
    record: list[dict[str, Any]] = []
    for rows, (inner, columns), cold in itertools.product(options.rows, SHAPES, (True, False)):
        found = measured(rows, inner, columns, cold=cold, seconds=options.seconds)
        record.append({"rows": rows, "inner": inner, "columns": columns, "cold": cold, "seconds": found})
        times = [f"{seconds * 1e6:.0f}" for seconds in found.values()]
        ratios = [f"{found[side] / found['ours']:.2f}" for side in ("f32", "stock")]
        table.add_row(str(rows), f"{inner}x{columns}", "cold" if cold else "warm", *times, *ratios)
    rich.print(table)
    if options.output is not None:
        options.output.write_text(json.dumps({"header": lines, "cases": record}, indent=1))


if __name__ == "__main__":
    main()
