"""Products and lookups with the weights of a GGUF file, which stay as the file has them: blocks of Q8_0 and Q4_0.

A block is 32 adjacent weights of a row with a scale in f16: 32 integers of eight bits, or 16 bytes that have a weight
in their lower four bits and, 16 places on, another one in their upper four, from 0 to 15 for -8 to 7.

    weights = read("model.gguf")
    y = jax.jit(linear)(x, weights["blk.0.ffn_up.weight"])

hlo-dispatch multiplies with the integers themselves, as arguments of a jitted function and as frozen weights.
`python gguf_weights.py model.gguf` lists a file's tensors.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import jax
import jax.numpy as jnp
import numpy as np

BLOCK = 32
"""Weights of a block."""
SCALE_BYTES = 2
QUANTIZED = {gguf.GGMLQuantizationType.Q8_0: np.int8, gguf.GGMLQuantizationType.Q4_0: np.uint8}
PLAIN = (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)


class Blocks(NamedTuple):
    """Quantized weights (outputs, inputs); a pytree."""

    integers: Any
    """(outputs, blocks, bytes): s8, or u8 with two weights each."""
    scales: Any
    """(outputs, blocks) in f16."""


def read(path: str | Path) -> dict[str, Any]:
    """Every tensor of a GGUF file that is quantized in one of these two ways, or not at all."""
    found: dict[str, Any] = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.tensor_type in QUANTIZED:
            found[tensor.name] = _blocks(tensor.data, QUANTIZED[tensor.tensor_type])
        elif tensor.tensor_type in PLAIN:
            found[tensor.name] = jnp.asarray(tensor.data)
        else:
            raise ValueError(
                f"{tensor.name} is quantized as {tensor.tensor_type.name}, which this example does not read"
            )
    return found


def _blocks(data: np.ndarray, kind: Any) -> Blocks:
    """Take integers and scales apart; they alternate in the file."""
    size = SCALE_BYTES + BLOCK // (1 if kind is np.int8 else 2)
    blocks = data.reshape(data.shape[0], -1, size)
    scales = np.ascontiguousarray(blocks[..., :SCALE_BYTES]).view(np.float16)[..., 0]
    return Blocks(jnp.asarray(np.ascontiguousarray(blocks[..., SCALE_BYTES:]).view(kind)), jnp.asarray(scales))


def dequantized(weights: Blocks, dtype: Any) -> jax.Array:
    """(outputs, inputs)."""
    integers = weights.integers
    if integers.dtype == jnp.uint8:
        integers = jnp.concatenate([integers & 15, integers >> 4], axis=-1).astype(jnp.int8) - 8
    wide = integers.astype(dtype) * weights.scales[..., None].astype(dtype)
    return wide.reshape(wide.shape[0], -1)


def linear(x: jax.Array, weights: Blocks) -> jax.Array:
    """x @ weightsᵀ."""
    return x @ dequantized(weights, x.dtype).T


def embedding(tokens: jax.Array, weights: Blocks, dtype: Any = jnp.float32) -> jax.Array:
    """Rows of a table."""
    rows = Blocks(weights.integers[tokens.reshape(-1)], weights.scales[tokens.reshape(-1)])
    return dequantized(rows, dtype).reshape(*tokens.shape, -1)


if __name__ == "__main__":
    for name, tensor in read(sys.argv[1]).items():
        print(name, *(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tensor)))
