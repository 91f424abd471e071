"""A ResNet block as a program: the input of a host without Python, and JAX's result.

    python resnet_block.py FOLDER

writes there `program.mlir` (StableHLO), each operand, JAX's own result, and the words that name the operands.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

CHANNELS, WIDE = 16, 64


def convolution(x: Any, weights: Any, stride: int = 1) -> Any:
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, weights, (stride, stride), "SAME", dimension_numbers=dimensions)


def normalized(x: Any, statistics: Any) -> Any:
    mean, variance, scale, shift = statistics
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def block(x: Any, weights: tuple[Any, ...], statistics: tuple[Any, ...]) -> Any:
    """A bottleneck of half the resolution, with a projection beside it; pooled, so that XLA has something to do."""
    first, second, third, projection = weights
    y = jax.nn.relu(normalized(convolution(x, first), statistics[0]))
    y = jax.nn.relu(normalized(convolution(y, second, 2), statistics[1]))
    y = normalized(convolution(y, third), statistics[2])
    y = jax.nn.relu(y + normalized(convolution(x, projection, 2), statistics[3]))
    return jnp.cumsum(y, axis=1)


def operands() -> tuple[Any, ...]:
    random = np.random.default_rng(5)

    def made(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32) / 5

    shapes = ((1, 1, 32, CHANNELS), (3, 3, CHANNELS, CHANNELS), (1, 1, CHANNELS, WIDE), (1, 1, 32, WIDE))
    weights = tuple(made(*shape) for shape in shapes)
    statistics = tuple(
        (made(shape[3]), np.abs(made(shape[3])) + 1, made(shape[3]) + 1, made(shape[3])) for shape in shapes
    )
    return made(2, 27, 29, 32), weights, statistics


def write(folder: Path) -> None:
    given = operands()
    lowered = jax.jit(block).lower(*given)
    compiled = lowered.compile()
    (folder / "program.mlir").write_text(str(lowered.compiler_ir("stablehlo")))
    words: list[str] = []
    for i, operand in enumerate(jax.tree.leaves(given)):
        (folder / f"{i}.bin").write_bytes(operand.tobytes())
        words.append(f"{'x'.join(map(str, operand.shape))}:{folder / f'{i}.bin'}")
    (folder / "operands").write_text("\n".join(words))
    np.save(folder / "result.npy", np.asarray(compiled(*given)))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
