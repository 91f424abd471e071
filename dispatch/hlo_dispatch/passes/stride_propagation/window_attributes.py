"""Attributes of window calls: the strides of the positions that they read, and attributes for strided results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hlo_dispatch.ir.kernel_call import operand_roles
from hlo_dispatch.ir.shape import Shape

Strides = tuple[int, ...]
"""Stride of each spatial dimension."""

_FIRST_SPATIAL = 2
"""Number of the first spatial dimension, after batch and channels."""


def strides_read(attributes: Mapping[str, Any]) -> Strides | None:
    """Strides of the source positions that a 1x1 convolution reads; None: it reads all positions, or has a window."""
    window, steps = attributes["weights_dims"][-len(attributes["strides"]) :], tuple(attributes["strides"])
    no_padding = not any((*attributes["padding_low"], *attributes["padding_high"]))
    return steps if no_padding and all(size == 1 for size in window) and any(step != 1 for step in steps) else None


def reader_attributes(attributes: Mapping[str, Any], steps: Strides) -> dict[str, Any] | None:
    """The attributes of a 1x1 convolution whose source has the strided positions only."""
    source = _tensor(attributes, steps, "src_")
    return None if source is None else {**attributes, **source, "strides": [1] * len(steps)}


def writer_attributes(attributes: Mapping[str, Any], steps: Strides) -> tuple[dict[str, Any], list[int]] | None:
    """The attributes of a call that computes the strided positions only, and the operands to subsample.

    Returns:
        None where one of its tensors is not dense.
    """
    result = _tensor(attributes, steps, "dst_")
    if result is None:
        return None
    strides = [stride * step for stride, step in zip(attributes["strides"], steps, strict=True)]
    changed = {**attributes, **result, "strides": strides}
    strided_operands: list[int] = []
    for position, name in enumerate(operand_roles(attributes)):
        if name not in attributes:
            continue  # no post-op's
        operand = attributes[name]
        size = operand["dims"][_FIRST_SPATIAL:]
        if all(extent == 1 for extent in size):
            continue  # the same for all positions
        tensor = _tensor(operand, steps)
        if size != attributes["dst_dims"][_FIRST_SPATIAL:] or tensor is None:
            return None
        changed[name] = {**operand, **tensor}
        strided_operands.append(position)
    return changed, strided_operands


def subsampling_attributes(call: Mapping[str, Any], post_op: str, steps: Strides) -> dict[str, Any] | None:
    """The attributes of a pooling that subsamples a post-op's operand.

    An average over one value: a maximum would not see NaN.
    """
    operand = call[post_op]
    tensor = _tensor(operand, steps)
    if tensor is None:
        return None
    zeros = [0] * len(steps)
    return {
        "abi": call["abi"],
        "library": call["library"],
        "scratch": 0,
        **{"src_type": operand["type"], "dst_type": operand["type"]},
        **{"src_dims": operand["dims"], "src_strides": operand["strides"]},
        **{"dst_dims": tensor["dims"], "dst_strides": tensor["strides"]},
        **{"algorithm": "average", "window": [1] * len(steps), "strides": list(steps)},
        **{"dilations": zeros, "padding_low": zeros, "padding_high": zeros},
    }


def strided_shape(shape: Shape, dims: Sequence[int], strides: Sequence[int], steps: Strides) -> Shape | None:
    """The shape of a value with the strided positions of a tensor of these dimensions only.

    Returns:
        None where its dimensions are not the tensor's in some order.
    """
    shape_order = sorted((-stride, place) for place, (size, stride) in enumerate(shape.strided_dimensions) if size > 1)
    tensor_order = sorted((-stride, place) for place, stride in enumerate(strides) if dims[place] > 1)
    if [(stride, shape.dimensions[place]) for stride, place in shape_order] != [
        (s, dims[place]) for s, place in tensor_order
    ]:
        return None
    dimensions = list(shape.dimensions)
    for (_, place), (_, dimension) in zip(shape_order, tensor_order, strict=True):
        if dimension >= _FIRST_SPATIAL:
            dimensions[place] = -(-dimensions[place] // steps[dimension - _FIRST_SPATIAL])
    return Shape(shape.element_type, tuple(dimensions), shape.minor_to_major)


def _tensor(attributes: Mapping[str, Any], steps: Strides, role: str = "") -> dict[str, Any] | None:
    """Dimensions and strides of a dense tensor of the strided positions; None where the tensor is not dense."""
    dims, strides = attributes[f"{role}dims"], attributes[f"{role}strides"]
    if f"{role}elements" in attributes:
        return None
    # Of dimensions with equal strides, those of one element are outer ones.
    order = sorted(range(len(dims)), key=lambda dimension: (strides[dimension], dims[dimension] == 1))
    if any(strides[d] != expected and dims[d] > 1 for d, expected in _dense(order, dims).items()):
        return None
    sizes = [
        *dims[:_FIRST_SPATIAL],
        *(-(-size // step) for size, step in zip(dims[_FIRST_SPATIAL:], steps, strict=True)),
    ]
    dense = _dense(order, sizes)
    return {f"{role}dims": sizes, f"{role}strides": [dense[dimension] for dimension in range(len(sizes))]}


def _dense(order: Sequence[int], dims: Sequence[int]) -> dict[int, int]:
    """Dimension → its stride, from the fastest varying on."""
    distance, strides = 1, dict[int, int]()
    for dimension in order:
        strides[dimension] = distance
        distance *= dims[dimension]
    return strides
