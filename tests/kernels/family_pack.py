"""Attribute fuzzer, weight prepacking: valid calls and their reference."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, onednn, tensors

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, libraries, registry

_TYPES = {"f32": np.dtype(np.uint32), "bf16": np.dtype(np.uint16), "f16": np.dtype(np.uint16)}


def _reading() -> list[WireCall]:
    """A product that reads packed weights, with a bias and a residual."""
    dims = {"src": [5, 32], "weights": [32, 64], "dst": [5, 64]}
    attributes = tensors(**{role: ("f32", sizes) for role, sizes in dims.items()})
    attributes |= {"weights_format": "packed", "bias_type": "f32"}
    residual = tensors(x=("f32", dims["dst"]))
    binary = {name.removeprefix("x_"): value for name, value in residual.items()}
    attributes["post_op_0"] = {"kind": "binary", "algorithm": "add"} | binary
    planned = kernels.plan("onednn.matmul", {"abi": registry.abi(), "library": "", "scratch": 0} | attributes)
    if isinstance(planned, Refusal) or not planned.packed_bytes:
        return []
    said = {"packed_bytes": planned.packed_bytes, "packed_layout": planned.packed_layout}
    operands = [Array("f32", dims["src"]), Array("u8", [planned.packed_bytes]), Array("f32", [64])]
    result = Array("f32", dims["dst"])
    return [onednn("matmul", attributes | said, [*operands, Array("f32", dims["dst"])], result)]


def _call(target: str, attributes: dict[str, Any], weights: Array) -> list[WireCall]:
    """The call that packs; none where the processor has no other layout for the weights."""
    libraries.onednn()
    attributes = {"weights_format": "packed"} | attributes
    planned = kernels.plan(target, {"abi": registry.abi(), "library": "", "scratch": 0} | attributes)
    if isinstance(planned, Refusal) or not planned.packed_bytes:
        return []
    said = {"target": target, "packed_bytes": planned.packed_bytes, "packed_layout": planned.packed_layout}
    return [onednn("pack", attributes | said, [weights], Array("u8", [planned.packed_bytes]))]


def valid_calls() -> list[WireCall]:
    """Products and the convolutions both ways, some of them back to front; and one that reads what was packed."""
    made = _reading()
    for dtype, k, n in (("f32", 17, 40), ("bf16", 33, 64), ("f32", 300, 65)):
        attributes = tensors(src=(dtype, [5, k]), weights=(dtype, [k, n]), dst=(dtype, [5, n]))
        made += _call("onednn.matmul", attributes, Array(dtype, [k, n]))
    window = {"strides": 1, "dilations": 0, "padding_low": 1, "padding_high": 1}
    for spatial, groups, dtype in ((2, 1, "f32"), (1, 1, "bf16"), (2, 16, "f32"), (3, 1, "f32")):
        weights = [groups, 16 // groups, 16 // groups, *[3] * spatial] if groups > 1 else [16, 16, *[3] * spatial]
        data = [2, 16, *[6] * spatial]
        attributes = tensors(src=(dtype, data), weights=(dtype, weights), dst=(dtype, data))
        attributes |= {name: [value] * spatial for name, value in window.items()}
        for target, turned in itertools.product(("onednn.convolution", "onednn.deconvolution"), (0, 1)):
            made += _call(target, attributes | {"weights_reversed": turned}, Array(dtype, weights))
    return made


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Any) -> list[Any]:
    """What was written and what the layout's words say; nothing where they are missing."""
    if "packed_layout" not in said:
        return []
    weights = given[0].view(_TYPES[said["weights_type"]])
    placed_weights = placed(said, "weights", weights, said.get("weights_offset", 0))
    if said.get("weights_reversed"):
        placed_weights = np.flip(placed_weights, tuple(range(2 - len(said["src_dims"]), 0)))
    found = results[0].view(weights.dtype).astype(np.float64)
    choices = arrangements(placed_weights, said["packed_layout"])
    expected = next((choice for choice in choices if np.array_equal(choice, found)), choices[0])
    return [("packed", found, expected)]


def unpacked(said: dict[str, Any], packed: np.ndarray) -> np.ndarray:
    """The weights that a product reads."""
    dims = said["weights_dims"]
    number = np.arange(1, np.prod(dims) + 1).reshape(dims)
    (order,) = arrangements(number, said["packed_layout"])
    place = np.argsort(order)[-number.size :]
    return packed.view(np.float32).astype(np.float64)[place].reshape(dims)


def arrangements(weights: np.ndarray, layout: str) -> list[np.ndarray]:
    """The weights in the layout's words; both ways where the primitive may be one that exchanges two dimensions."""
    words = re.fullmatch(
        r"\w+ ([\dx]+) padded ([\dx]+) strides ([\dx]+) blocks((?: \d+:\d+)*)(?: back to front)?", layout
    )
    assert words, layout
    dims, padded, strides = (tuple(map(int, words[place].split("x"))) for place in (1, 2, 3))
    blocks = [tuple(map(int, block.split(":"))) for block in words[4].split()]
    if weights.ndim < len(dims):  # a one-dimensional window over two dimensions
        weights = np.expand_dims(weights, -2)
    made = [weights]
    if weights.ndim > 3:
        made.append(np.swapaxes(weights, 1, 2))
    return [arranged(choice, padded, strides, blocks) for choice in made if choice.shape == dims]


def arranged(
    weights: np.ndarray, padded: tuple[int, ...], strides: tuple[int, ...], blocks: list[tuple[int, ...]]
) -> np.ndarray:
    """Each element at the place that the strides between blocks and the order within them give it."""
    whole = np.pad(weights, [(0, after - size) for size, after in zip(weights.shape, padded, strict=True)])
    within = [1] * len(padded)
    for size, dimension in blocks:
        within[dimension] *= size
    index = np.indices(padded)
    place = sum((index[i] // within[i]) * strides[i] for i in range(len(padded)))
    step, left = 1, [index[i] % within[i] for i in range(len(padded))]
    for size, dimension in reversed(blocks):
        place = place + (left[dimension] % size) * step
        left[dimension] = left[dimension] // size
        step *= size
    flat = np.zeros(whole.size)
    flat[place.reshape(-1)] = whole.reshape(-1)
    return flat
