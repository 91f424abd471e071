"""Where dispatching pays: single products over a grid of sizes, epilogues and types, against stock XLA.

    python -m bench.grid [--seconds 0.2]

The heuristic's constants (dispatch/hlo_dispatch/policy/heuristic.py) are read off this table. Every row is
one size and type; every cell the stock time in milliseconds and how many times faster the kernel is, both
ways compiled in one process and timed in turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import hlo_dispatch
from hlo_dispatch.demo.timing import interleaved

from .header import header

SIZES = (
    (1, 768, 768), (1, 2048, 1000), (1, 4096, 4096), (8, 64, 64), (8, 768, 768), (32, 256, 256),
    (32, 768, 3072), (64, 64, 64), (128, 128, 128), (128, 768, 768), (128, 768, 3072), (128, 3072, 768),
    (256, 256, 256), (512, 512, 512), (512, 768, 3072), (1024, 1024, 1024), (4096, 320, 320),
    (4096, 320, 1280),
)  # fmt: skip
EPILOGUES: dict[str, Callable] = {
    "plain": lambda x, w, b: x @ w,
    "transposed": lambda x, w, b: x @ w.reshape(w.shape[::-1]).T,
    "relu": lambda x, w, b: jax.nn.relu(x @ w + b),
    "gelu_tanh": lambda x, w, b: jax.nn.gelu(x @ w + b),
    "gelu_erf": lambda x, w, b: jax.nn.gelu(x @ w + b, approximate=False),
}


def ratio(function: Callable, arguments: tuple, seconds: float) -> tuple[float, float]:
    """(stock milliseconds, stock time over dispatched time) of one function."""
    stock = jax.jit(function).lower(*arguments).compile()
    with hlo_dispatch.enabled(policy="always"):
        dispatched = jax.jit(function).lower(*arguments).compile()
    calls = {
        "stock": lambda: jax.block_until_ready(stock(*arguments)),
        "dispatched": lambda: jax.block_until_ready(dispatched(*arguments)),
    }
    timings = interleaved(calls, seconds=seconds)
    return timings["stock"].median * 1e3, timings["stock"].median / timings["dispatched"].median


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each cell")
    seconds = parser.parse_args().seconds
    print("\n".join(header()))
    random = np.random.default_rng(0)
    print(f"{'type':9}{'rows, inner, columns':24}" + "".join(f"{name:>18}" for name in EPILOGUES))
    for dtype in (jnp.float32, jnp.bfloat16):
        for rows, inner, columns in SIZES:
            arguments = tuple(
                jnp.asarray(random.standard_normal(shape) / np.sqrt(inner), dtype)
                for shape in ((rows, inner), (inner, columns), (columns,))
            )
            cells = (ratio(function, arguments, seconds) for function in EPILOGUES.values())
            text = "".join(f"{f'{ms:.3f} {gain:.2f}x':>18}" for ms, gain in cells)
            print(f"{dtype.__name__:9}{f'{rows}, {inner}, {columns}':24}{text}", flush=True)


if __name__ == "__main__":
    main()
