"""A window call's attributes: which positions it reads, and what they are when only some positions are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hlo_dispatch.ir.shape import Shape

Steps = tuple[int, ...]
"""Of each spatial dimension: every so-manieth position."""

_SPACE = 2
"""How many dimensions of a tensor come before those of space: batch and channels."""


def steps_read(attributes: Mapping[str, Any]) -> Steps | None:
    """Which positions of its source a convolution of single positions reads; None: all of them, or others as well."""
    window, steps = attributes["weights_dims"][-len(attributes["strides"]) :], tuple(attributes["strides"])
    no_padding = not any((*attributes["padding_low"], *attributes["padding_high"]))
    return steps if no_padding and all(size == 1 for size in window) and any(step != 1 for step in steps) else None


def operands_of_post_ops(attributes: Mapping[str, Any]) -> dict[int, str]:
    """Position among the call's operands → the post-op that reads it."""
    found: dict[int, str] = {}
    position = 1 + ("weights_dims" in attributes) + ("bias_type" in attributes)
    for name, value in attributes.items():
        if name.startswith("post_op_") and value["kind"] == "binary":
            found[position] = name
            position += 1
    return found


def reading(attributes: Mapping[str, Any], steps: Steps) -> dict[str, Any] | None:
    """The attributes of a convolution of single positions that finds nothing else in its source than what it reads."""
    source = _tensor(attributes, steps, "src_")
    return None if source is None else {**attributes, **source, "strides": [1] * len(steps)}


def writing(attributes: Mapping[str, Any], steps: Steps) -> tuple[dict[str, Any], list[int]] | None:
    """The attributes of a call that computes these positions alone, and which operands it needs at those.

    Returns:
        None where a tensor of it is no dense one of its own.
    """
    result = _tensor(attributes, steps, "dst_")
    if result is None:
        return None
    strides = [stride * step for stride, step in zip(attributes["strides"], steps, strict=True)]
    changed = {**attributes, **result, "strides": strides}
    thinned: list[int] = []
    for position, name in operands_of_post_ops(attributes).items():
        operand = attributes[name]
        size = operand["dims"][_SPACE:]
        if all(extent == 1 for extent in size):
            continue  # the same for all positions
        tensor = _tensor(operand, steps)
        if size != attributes["dst_dims"][_SPACE:] or tensor is None:
            return None
        changed[name] = {**operand, **tensor}
        thinned.append(position)
    return changed, thinned


def picking(call: Mapping[str, Any], post_op: str, steps: Steps) -> dict[str, Any] | None:
    """The attributes of a pooling that picks these positions of a post-op's operand.

    An average over one value: a maximum would not see NaN.
    """
    operand = call[post_op]
    tensor = _tensor(operand, steps)
    if tensor is None:
        return None
    nothing = [0] * len(steps)
    return {
        "abi": call["abi"],
        "library": call["library"],
        "scratch": 0,
        **{"src_type": operand["type"], "dst_type": operand["type"]},
        **{"src_dims": operand["dims"], "src_strides": operand["strides"]},
        **{"dst_dims": tensor["dims"], "dst_strides": tensor["strides"]},
        **{"algorithm": "average", "window": [1] * len(steps), "strides": list(steps)},
        **{"dilations": nothing, "padding_low": nothing, "padding_high": nothing},
    }


def thinned_shape(shape: Shape, dims: Sequence[int], strides: Sequence[int], steps: Steps) -> Shape | None:
    """The shape of a value that a tensor of these dimensions is, with these positions alone.

    Returns:
        None where its dimensions are not the tensor's, in whatever order.
    """
    ours = sorted((-stride, place) for place, (size, stride) in enumerate(shape.places) if size > 1)
    theirs = sorted((-stride, place) for place, stride in enumerate(strides) if dims[place] > 1)
    if [(stride, shape.dimensions[place]) for stride, place in ours] != [(s, dims[place]) for s, place in theirs]:
        return None
    dimensions = list(shape.dimensions)
    for (_, place), (_, dimension) in zip(ours, theirs, strict=True):
        if dimension >= _SPACE:
            dimensions[place] = -(-dimensions[place] // steps[dimension - _SPACE])
    return Shape(shape.element_type, tuple(dimensions), shape.minor_to_major)


def _tensor(attributes: Mapping[str, Any], steps: Steps, role: str = "") -> dict[str, Any] | None:
    """A dense tensor's dimensions and strides at these positions; None where it is a part of one, or has gaps."""
    dims, strides = attributes[f"{role}dims"], attributes[f"{role}strides"]
    if f"{role}elements" in attributes:
        return None
    # Of dimensions with one stride, those of one element lie around the other.
    order = sorted(range(len(dims)), key=lambda dimension: (strides[dimension], dims[dimension] == 1))
    if any(strides[d] != expected and dims[d] > 1 for d, expected in _dense(order, dims).items()):
        return None
    sizes = [*dims[:_SPACE], *(-(-size // step) for size, step in zip(dims[_SPACE:], steps, strict=True))]
    dense = _dense(order, sizes)
    return {f"{role}dims": sizes, f"{role}strides": [dense[dimension] for dimension in range(len(sizes))]}


def _dense(order: Sequence[int], dims: Sequence[int]) -> dict[int, int]:
    """Dimension → its stride, from the fastest varying on."""
    distance, strides = 1, dict[int, int]()
    for dimension in order:
        strides[dimension] = distance
        distance *= dims[dimension]
    return strides
