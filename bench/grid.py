"""Break-even sizes of kernels: single products and convolutions over a grid of sizes, against stock XLA.

    python -m bench.grid [--seconds 0.2] [--convolutions | --folding | --poolings]

`--convolutions` looks at small ones, dense and depthwise; `--poolings` at windows of 2 and 3 in f32 and bf16;
`--folding` at the time of a scale and shift as
post-ops over their time in the weights and the bias.

The heuristic's constants (dispatch/hlo_dispatch/selection/cost_model.py) are read off this table. Every row is
one size and type; every cell the stock time in milliseconds and how many times faster the kernel is, both
ways compiled in one process and timed in turns.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.demo.timing import interleaved
from hlo_dispatch.selection import family_cost_models

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


def convolution(kernel: int, size: int, channels: int, groups: int, *, scaled: bool = False) -> tuple[Callable, tuple]:
    """A convolution with bias (or scale and shift) and relu on one image, and its arguments."""

    def function(x, w, b):
        y = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        )
        return jax.nn.relu(y * b + b if scaled else y + b)

    shapes = ((1, size, size, channels), (kernel, kernel, channels // groups, channels), (channels,))
    random = np.random.default_rng(0)
    return function, tuple(jnp.asarray(random.standard_normal(shape), jnp.float32) for shape in shapes)


def print_convolutions(seconds: float) -> None:
    """Stock microseconds and gain of small convolutions."""
    for kernel, depthwise in ((1, False), (3, False), (3, True)):
        for size in (4, 8, 16, 28):
            cells = []
            for channels in (16, 32, 64, 128):
                function, arguments = convolution(kernel, size, channels, channels if depthwise else 1)
                ms, gain = ratio(function, arguments, seconds)
                cells.append(f"{f'{channels}: {ms * 1e3:.0f} us {gain:.2f}x':>22}")
            print(f"{kernel}x{kernel} {'depthwise' if depthwise else 'dense':10}{size:>3} {''.join(cells)}", flush=True)


def print_poolings(seconds: float) -> None:
    """Stock microseconds and gain of maximum and average poolings; in brackets what their windows read."""
    random = np.random.default_rng(0)
    for dtype in (jnp.float32, jnp.bfloat16):
        for pool, window in ((nn.max_pool, 2), (nn.max_pool, 3), (nn.avg_pool, 3)):
            for size in (4, 8, 16, 32, 56):
                cells = []
                for channels in (16, 64, 256):
                    x = jnp.asarray(random.standard_normal((1, size, size, channels)), dtype)
                    function = partial(pool, window_shape=(window, window), strides=(2, 2), padding="SAME")
                    ms, gain = ratio(lambda x, function=function: function(x), (x,), seconds)
                    reads = (size // 2) ** 2 * channels * window**2
                    cells.append(f"{f'{channels} ({reads:,}): {ms * 1e3:.0f} us {gain:.2f}x':>34}")
                print(f"{dtype.__name__} {pool.__name__} {window}x{window}{size:>4} {''.join(cells)}", flush=True)


def print_folding(seconds: float) -> None:
    """Microseconds of both forms of a scaled convolution."""
    for kernel, size, channels, groups in (
        (1, 56, 64, 1), (1, 28, 256, 1), (1, 14, 512, 1), (3, 56, 64, 1), (3, 112, 96, 96), (3, 56, 144, 144),
        (3, 14, 576, 576),
    ):  # fmt: skip
        function, arguments = convolution(kernel, size, channels, groups, scaled=True)
        calls = {}
        for form, folds in (("post-ops", False), ("folded", True)):
            with mock.patch.object(family_cost_models, "is_worth_folding", lambda match, folds=folds: folds):
                with hlo_dispatch.enabled(policy="always"):
                    compiled = jax.jit(function).lower(*arguments).compile()
            calls[form] = partial(_run, compiled, arguments)
        cells = (f"{form} {timing.median * 1e6:.0f} us" for form, timing in interleaved(calls, seconds=seconds).items())
        print(f"{kernel}x{kernel}, {size}x{size}, {channels} channels, {groups} groups: {', '.join(cells)}", flush=True)


def _run(compiled: Callable, arguments: tuple) -> None:
    jax.block_until_ready(compiled(*arguments))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each cell")
    parser.add_argument("--convolutions", action="store_true", help="small convolutions instead")
    parser.add_argument("--poolings", action="store_true", help="windows instead")
    parser.add_argument("--folding", action="store_true", help="scales behind or inside the weights instead")
    chosen = parser.parse_args()
    seconds = chosen.seconds
    print("\n".join(header()))
    others = {print_convolutions: chosen.convolutions, print_folding: chosen.folding, print_poolings: chosen.poolings}
    for printing, is_chosen in others.items():
        if is_chosen:
            printing(seconds)
            return
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
