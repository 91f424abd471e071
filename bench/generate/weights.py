"""Random weights of the decoder, and a prompt: the same numbers for every library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

NORMS = ("norm_before", "norm_between")
"""A layer's norms, whose scales are 1; the one behind the layers is `norm`."""
ROTATION_BASE = 10000.0
EPSILON = 1e-5
"""In a norm's root."""
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class DecoderSize:
    """Dimensions of a decoder."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    """Width between the two products of the gated unit."""
    vocabulary: int = 32000

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """A layer's weights: name → inputs and outputs."""
        keys = self.kv_heads * self.head_size
        return {
            "query": (self.width, self.width), "key": (self.width, keys), "value": (self.width, keys),
            "out": (self.width, self.width), "gate": (self.width, self.hidden), "up": (self.width, self.hidden),
            "down": (self.hidden, self.width),
        }  # fmt: skip


SIZES = {
    "tiny": DecoderSize(2, 256, 4, 2, 704),
    "small": DecoderSize(20, 1024, 16, 4, 2816),  # 0.29e9 parameters
    "large": DecoderSize(22, 2048, 32, 4, 5632),  # 1.1e9
}


def random_weights(size: DecoderSize) -> Iterator[tuple[int | None, str, Array]]:
    """(layer, name, f32 array [inputs, outputs]) of all layers, then (None, "embedding", …) and (None, "head", …)."""
    random = np.random.default_rng(0)

    def matrix(inputs: int, outputs: int) -> Array:
        return random.standard_normal((inputs, outputs), np.float32) * np.float32(inputs**-0.5)

    for layer in range(size.layers):
        for name, shape in size.matrices.items():
            yield layer, name, matrix(*shape)
    yield None, "embedding", random.standard_normal((size.vocabulary, size.width), np.float32)
    yield None, "head", matrix(size.width, size.vocabulary)


def random_prompt(size: DecoderSize, batch: int, count: int) -> Array:
    """Tokens i32[batch, count]; a longer prompt begins like a shorter one."""
    return np.random.default_rng(7).integers(3, size.vocabulary, (count, batch)).T.astype(np.int32)
