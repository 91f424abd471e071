"""Small-batch matmul by kernel, GEMV for one row: `python -m bench.few_rows [--rows 1 4 8] [--output FILE]`.

In turns, in one process: XLA's product, oneDNN's and our own, with weights of f32 and bf16 in both orders. Warm: the
same weights in every call. Cold: each call takes the next of as many copies as do not fit into the caches, as a model's
layers do.
"""

# pyright: basic, reportOperatorIssue=false
# jax has no complete type hints.
from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.narrow import copies, in_turn
from hlo_dispatch.demo.timing import interleaved

SHAPES = ((768, 768), (768, 3072), (4096, 4096), (768, 50257))
"""What is summed up, and columns: layers of GPT-2's, a projection of a larger language model's, GPT-2's vocabulary."""
_TABLE = """version: 1
anchors:
  by_one_kernel:
    opcode: dot
    reading: product
    priority: 1
    kernel: {kernel}
    formula: dst = src . weights
    dtypes: [f32, bf16]
    numerics:
      f32: {{tolerance: 1e-5, why: sums in another order}}
      bf16: {{tolerance: 2e-2, why: sums in another order}}
    origin: bench.few_rows
"""
KERNELS = {"oneDNN": "onednn.matmul", "ours": "own.narrow_product"}


def by_row(x: Any, w: Any) -> Any:
    return x @ w


def by_column(x: Any, w: Any) -> Any:
    return x @ w.T


ORDERS = {"(in, out)": by_row, "(out, in)": by_column}


def measured(
    rows: int, inner: int, columns: int, dtype: str, order: str, *, cold: bool, seconds: float, folder: Path
) -> dict[str, float]:
    """Median seconds of each side; raises AssertionError where ours is wrong."""
    random = np.random.default_rng(0)
    function = ORDERS[order]
    dims = (inner, columns) if function is by_row else (columns, inner)
    x = jnp.asarray(random.standard_normal((rows, inner)), dtype)
    size = inner * columns * jnp.dtype(dtype).itemsize
    weights = [
        (w,) for w in copies(lambda: jnp.array(random.standard_normal(dims, np.float32), dtype), size, cold=cold)
    ]
    with hlo_dispatch.enabled(policy="never"):
        calls = {"stock": jax.jit(function).lower(x, *weights[0]).compile()}
    for side, kernel in KERNELS.items():
        table = folder / f"{kernel}.yaml"
        table.write_text(_TABLE.format(kernel=kernel))
        with hlo_dispatch.enabled(policy="always", tables=[table]):
            calls[side] = jax.jit(function).lower(x, *weights[0]).compile()
        assert kernel in calls[side].as_text(), f"it was not dispatched to {kernel}"
    exact = function(np.asarray(x, "float64"), np.asarray(weights[0][0], "float64"))
    got = np.asarray(calls["ours"](x, *weights[0]), "float64")
    assert np.abs(got - exact).max() <= (1e-5 if dtype == "float32" else 1e-2) * np.abs(exact).max(), "it is wrong"
    turns = {side: in_turn(call, x, weights) for side, call in calls.items()}
    return {name: timing.median for name, timing in interleaved(turns, seconds=seconds).items()}


def main() -> None:
    """Measure, print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.few_rows", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 4, 8])
    parser.add_argument("--seconds", type=float, default=1.5, help="for each case")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args()
    lines = header()
    print(*lines, sep="\n")
    shown = Table("rows", "weights", "of", "caches", "stock", "oneDNN", "ours", "GB/s", "stock/ours", "oneDNN/ours",
                  title="µs")  # fmt: skip
    record: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        cases = itertools.product(options.rows, SHAPES, ("float32", "bfloat16"), ORDERS, (True, False))
        for rows, (inner, columns), dtype, order, cold in cases:
            found = measured(rows, inner, columns, dtype, order, cold=cold, seconds=options.seconds,
                             folder=Path(folder))  # fmt: skip
            case = {"rows": rows, "inner": inner, "columns": columns, "dtype": dtype, "order": order, "cold": cold}
            record.append(case | {"seconds": found})
            times = [f"{seconds * 1e6:.0f}" for seconds in found.values()]
            rate = inner * columns * jnp.dtype(dtype).itemsize / found["ours"] / 1e9
            ratios = [f"{found[side] / found['ours']:.2f}" for side in ("stock", "oneDNN")]
            shown.add_row(str(rows), f"{inner}x{columns} {order}", dtype, "cold" if cold else "warm", *times,
                          f"{rate:.0f}", *ratios)  # fmt: skip
    Console(width=120).print(shown)
    if options.output is not None:
        options.output.write_text(json.dumps({"header": lines, "cases": record}, indent=1))


if __name__ == "__main__":
    main()
