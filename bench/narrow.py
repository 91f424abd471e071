"""Weight-only quantized matmul, s8 and s4: `python -m bench.narrow [--rows 1 4 16] [--output FILE]`.

In turns, in one process: XLA's product with f32 weights, XLA's with narrow ones (`x @ (w.astype(x.dtype) * scale)`),
and ours with the same, in both orders of the weights; scales are one for each column, or one for each and every GROUP
of what is summed up. Warm: the same weights in every call. Cold: each call takes the
next of as many copies as do not fit into the caches, as a model's layers do.
"""

# pyright: basic, reportOperatorIssue=false
# jax has no complete type hints.
from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.demo.timing import interleaved

SHAPES = ((768, 3072), (4096, 4096))
"""What is summed up, and columns: a feed-forward layer of BERT's, a projection of a language model's."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CACHE_IF_UNKNOWN = 64 << 20
WIDTH = 120
"""Of the table, in characters, wherever it is printed to."""
NAMES = {"int8": "s8", "int4": "s4"}
"""The integers, and how HLO names them."""
GROUP = 64
"""How many weights that are summed up have one scale, in cases of groups."""


class NarrowCase(NamedTuple):
    """One product."""

    rows: int
    shape: tuple[int, int]
    kind: str
    grouped: bool
    cold: bool


def cache_bytes() -> int:
    """Size of the processor's largest cache."""
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    return max((int(size.removesuffix("K")) << 10 for size in sizes if size.endswith("K")), default=CACHE_IF_UNKNOWN)


def plain(x: Any, w: Any) -> Any:
    return x @ w


def narrow(x: Any, w: Any, scale: Any) -> Any:
    """Scales (groups, columns)."""
    groups, columns = scale.shape
    return x @ (w.reshape(groups, -1, columns).astype(x.dtype) * scale[:, None]).reshape(w.shape)


def transposed(x: Any, w: Any, scale: Any) -> Any:
    """Weights (columns, inner) and scales (columns, groups)."""
    columns, groups = scale.shape
    return x @ (w.reshape(columns, groups, -1).astype(x.dtype) * scale[:, :, None]).reshape(w.shape).T


def in_turn(function: Callable[..., Any], x: Any, weights: Sequence[tuple[Any, ...]]) -> Callable[[], object]:
    """The function of x and the next weights."""
    numbers = itertools.cycle(range(len(weights)))
    return lambda: jax.block_until_ready(function(x, *weights[next(numbers)]))


def copies(made: Callable[[], Any], size: int, *, cold: bool) -> list[Any]:
    """As many of so many bytes as do not fit into the caches; one to stay there."""
    return [made() for _ in range(2 * cache_bytes() // size + 3 if cold else 1)]


def measured(case: NarrowCase, *, seconds: float) -> dict[str, float]:
    """Median seconds of each side."""
    random = np.random.default_rng(0)
    cold, (inner, columns) = case.cold, case.shape
    x = jnp.asarray(random.standard_normal((case.rows, inner)), "float32")
    scale = np.asarray(random.random((inner // GROUP if case.grouped else 1, columns)) / 100 + 1e-3, "float32")
    largest = int(jnp.iinfo(case.kind).max)
    integers = random.integers(-largest, largest + 1, (inner, columns), np.int8)
    size = integers.size // (2 if case.kind == "int4" else 1)
    exact_weights = (integers.reshape(len(scale), -1, columns) * scale[:, None].astype("float64")).reshape(
        integers.shape
    )
    # Each copy in memory of its own.
    wide = [(w,) for w in copies(lambda: jnp.array(exact_weights, "float32"), 4 * integers.size, cold=cold)]
    by_row = copies(lambda: (jnp.array(integers, case.kind), jnp.array(scale)), size, cold=cold)
    by_column = copies(lambda: (jnp.array(integers.T, case.kind), jnp.array(scale.T)), size, cold=cold)
    with hlo_dispatch.enabled(policy="never"):
        f32 = jax.jit(plain).lower(x, *wide[0]).compile()
        stock = jax.jit(narrow).lower(x, *by_row[0]).compile()
    with hlo_dispatch.enabled(policy="always"):
        ours = jax.jit(narrow).lower(x, *by_row[0]).compile()
        ours_transposed = jax.jit(transposed).lower(x, *by_column[0]).compile()
    for executable in (ours, ours_transposed):
        assert f'weights_type = "{NAMES[case.kind]}"' in executable.as_text(), "it was not dispatched"
    exact = np.asarray(x, "float64") @ exact_weights
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
    parser = argparse.ArgumentParser(prog="python -m bench.narrow", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args()
    lines = header()
    print(*lines, sep="\n")
    table = Table(
        "rows", "weights", "of", "scales", "caches", "f32", "stock", "ours", "(out, in)", "f32/ours", "stock/ours",
        title="µs",
    )  # fmt: skip
    record: list[dict[str, Any]] = []
    for case in itertools.starmap(
        NarrowCase, itertools.product(options.rows, SHAPES, NAMES, (False, True), (True, False))
    ):
        found = measured(case, seconds=options.seconds)
        record.append({**case._asdict(), "seconds": found})
        times = [f"{seconds * 1e6:.0f}" for seconds in found.values()]
        ratios = [f"{found[side] / found['ours']:.2f}" for side in ("f32", "stock")]
        scales = f"of {GROUP}" if case.grouped else "columns"
        shape = "x".join(map(str, case.shape))
        table.add_row(str(case.rows), shape, case.kind, scales, "cold" if case.cold else "warm", *times, *ratios)
    Console(width=WIDTH).print(table)
    if options.output is not None:
        options.output.write_text(json.dumps({"header": lines, "cases": record}, indent=1))


if __name__ == "__main__":
    main()
