"""Weight prepacking of one kernel call: the prepack call, and the attributes of the call on prepacked weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, registry

_FROM_THE_PLAN = ("packed_bytes", "packed_layout")


@dataclass(frozen=True)
class PrepackedCall:
    """Two calls in place of one: the first prepacks the weights, the second reads them as its operand.

    Both return a tuple of their result and `scratch` bytes (u8).
    """

    bytes: int
    """Size of the prepacked weights, an array of u8."""
    call: Mapping[str, Any]
    """The attributes of the call on prepacked weights, its scratch size included."""
    prepack_target: str
    """Target of the prepack custom-call, which takes the original weights."""
    prepack_attributes: Mapping[str, Any]
    """The attributes of the prepack call."""
    prepack_scratch: int
    """Scratch bytes of the prepack call, also among its attributes."""


def prepack_targets() -> frozenset[str]:
    """Targets of all prepack calls."""
    known = registry.kernels()
    return frozenset(known[kernel.prepacked_by].target for kernel in known.values() if kernel.prepacked_by)


def can_prepack(kernel: str) -> bool:
    """Whether calls of the kernel have weights that can be prepacked; a user's kernels have none."""
    known = registry.kernels().get(kernel)
    return known is not None and bool(known.prepacked_by)


def prepacked_call(kernel: str, attributes: Mapping[str, Any]) -> PrepackedCall | None:
    """The prepacked variant of a call, on this machine and for the loaded library.

    Args:
        kernel: the name of the call's kernel, such as onednn.matmul.
        attributes: all of the call's.

    Returns:
        None where the kernel cannot prepack these weights.
    """
    if not can_prepack(kernel):
        return None
    prepacked_by = registry.kernels()[kernel].prepacked_by
    query = {name: value for name, value in attributes.items() if name not in _FROM_THE_PLAN}
    query["weights_format"] = "packed"
    planned = kernels.plan(kernel, query)
    if isinstance(planned, Refusal) or not planned.packed_bytes:
        return None
    layout = {"packed_bytes": planned.packed_bytes, "packed_layout": planned.packed_layout}
    call = query | layout | {"scratch": planned.scratch_bytes}
    prepack_attributes = call | {"target": kernel}
    planned_prepack = kernels.plan(prepacked_by, prepack_attributes | {"scratch": 0})
    if isinstance(planned_prepack, Refusal):
        return None
    scratch = planned_prepack.scratch_bytes
    target = registry.kernels()[prepacked_by].target
    return PrepackedCall(planned.packed_bytes, call, target, prepack_attributes | {"scratch": scratch}, scratch)
