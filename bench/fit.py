"""Fit of the cost model's thresholds to this machine, and the loss of the present ones.

    python -m bench.fit [--seconds 0.2] [--context 35] [--only SMALLEST_DOT …]

For each threshold of dispatch/hlo_dispatch/selection/cost_model.py: programs of its kind in growing sizes, stock and
dispatched, timed in turns. A threshold's loss is the time that its choices take over the best choices, as a
mean of ratios; the fitted one lies between the two sizes where the loss is least. `--context` is what a call
costs more between two parallel loops of XLA's than alone, in microseconds (two thread pools wait for each other).

Nothing is written: a threshold in the source is meant to be right on many machines by a wide margin, and one
machine is only one voice.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from hlo_dispatch.bench.grid import convolution, ratio
from hlo_dispatch.bench.header import header
from hlo_dispatch.selection import cost_model


@dataclass(frozen=True)
class Point:
    """One size: what the threshold is compared with, and seconds of both choices."""

    size: int
    stock: float
    kernel: float


def loss(points: list[Point], threshold: float) -> float:
    """Slowdown of the choices over the best ones, as a geometric mean."""
    logarithms = [
        math.log((point.kernel if point.size >= threshold else point.stock) / min(point.stock, point.kernel))
        for point in points
    ]
    return math.exp(sum(logarithms) / len(points))


def fitted(points: list[Point]) -> float:
    """The threshold with the least loss; of equal ones the largest, which dispatches least."""
    sizes = sorted(point.size for point in points)
    between = [sizes[0] / 2, *(math.sqrt(a * b) for a, b in pairwise(sizes)), sizes[-1] * 2]
    return min(reversed(between), key=lambda threshold: loss(points, threshold))


def dense_convolutions() -> Iterator[tuple[int, Callable, tuple]]:
    for size, channels in ((4, 32), (8, 32), (8, 64), (14, 64), (14, 128), (28, 64), (28, 128), (56, 64)):
        yield size * size * channels * channels * 9, *convolution(3, size, channels, 1)


def depthwise_convolutions() -> Iterator[tuple[int, Callable, tuple]]:
    for size, channels in ((2, 16), (4, 16), (4, 32), (8, 32), (8, 64), (14, 96), (28, 96)):
        yield size * size * channels * 9, *convolution(3, size, channels, channels)


def dots_with_a_costly_epilogue() -> Iterator[tuple[int, Callable, tuple]]:
    for rows, inner, columns in (
        (16, 32, 64), (32, 64, 64), (64, 64, 128), (64, 128, 128), (128, 128, 256), (128, 256, 512), (256, 512, 512)
    ):  # fmt: skip
        yield rows * inner * columns, *product(rows, inner, columns, "float32", jax.nn.gelu)


def half_dots() -> Iterator[tuple[int, Callable, tuple]]:
    for size in (32, 64, 96, 128, 192, 256, 384, 512):
        yield size**3, *product(size, size, size, "bfloat16", lambda y: y)


def half_matrix_vector_products() -> Iterator[tuple[int, Callable, tuple]]:
    for inner, columns in ((64, 64), (128, 64), (128, 128), (256, 128), (256, 256), (512, 256), (512, 512)):
        yield inner * columns, *product(1, inner, columns, "bfloat16", lambda y: y)


def matrix_vector_products() -> Iterator[tuple[int, Callable, tuple]]:
    for inner, columns in ((128, 128), (256, 128), (256, 256), (512, 256), (512, 512), (768, 768), (1024, 896)):
        yield inner * columns, *product(1, inner, columns, "float32", lambda y: y)


def poolings() -> Iterator[tuple[int, Callable, tuple]]:
    random = np.random.default_rng(0)
    for size, channels in ((4, 16), (8, 16), (8, 64), (16, 64), (32, 64), (56, 64)):
        x = jnp.asarray(random.standard_normal((1, size, size, channels)), "float32")
        function = lambda x: nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")  # noqa: E731
        yield (size // 2) ** 2 * channels * 9, function, (x,)


def product(rows: int, inner: int, columns: int, kind: str, epilogue: Callable) -> tuple[Callable, tuple]:
    """A product with a bias and an epilogue, and its arguments."""
    random = np.random.default_rng(0)
    shapes = ((rows, inner), (inner, columns), (columns,))
    arguments = tuple(jnp.asarray(random.standard_normal(shape) / 4, kind) for shape in shapes)
    return lambda x, w, b: epilogue(x @ w + b), arguments


KINDS: dict[str, Callable[[], Iterator[tuple[int, Callable, tuple]]]] = {
    "SMALLEST_DENSE_CONVOLUTION": dense_convolutions,
    "SMALLEST_OTHER_CONVOLUTION": depthwise_convolutions,
    "SMALLEST_DOT": dots_with_a_costly_epilogue,
    "SMALLEST_NATIVE_HALF_DOT": half_dots,
    "SMALLEST_GEMV": matrix_vector_products,
    "SMALLEST_HALF_GEMV": half_matrix_vector_products,
    "SMALLEST_POOLING": poolings,
}


def main() -> None:
    """Measure and print each threshold as it is and as it would be."""
    parser = argparse.ArgumentParser(prog="python -m bench.fit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each size")
    parser.add_argument("--context", type=float, default=35.0, help="microseconds that a call costs more in a program")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    chosen = parser.parse_args()
    print("\n".join(header()))
    for name in chosen.only:
        points = []
        for size, function, arguments in KINDS[name]():
            milliseconds, gain = ratio(function, arguments, chosen.seconds)
            stock = milliseconds * 1e-3
            points.append(Point(size, stock, stock / gain + chosen.context * 1e-6))
        present, best = getattr(cost_model, name), fitted(points)
        cells = "  ".join(f"{p.size:,}: {p.stock * 1e6:.0f}/{p.kernel * 1e6:.0f} us" for p in points)
        print(f"{name}: {present:,} loses {loss(points, present):.2f}x, {best:,.0f} {loss(points, best):.2f}x")
        print(f"  {cells}", flush=True)


if __name__ == "__main__":
    main()
