"""A kernel call whose weights never change: what packs them once, and the call that reads them so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, registry

_SAID_BY_THE_PLAN = ("packed_bytes", "packed_layout")


@dataclass(frozen=True)
class PackedForm:
    """Two calls in place of one: the first packs the weights, the second has them as its operand instead.

    Both return a tuple, of what they compute and of as many bytes (u8) as their attribute `scratch` says.
    """

    bytes: int
    """Of the packed weights, which are an array of u8."""
    call: Mapping[str, Any]
    """The attributes of the call that reads them, the scratch memory it needs then among them."""
    pack_target: str
    """The custom-call's that packs: it takes the weights as they were, and returns them packed."""
    pack: Mapping[str, Any]
    """The attributes of that one."""
    pack_scratch: int
    """Its scratch memory in bytes; `pack` says it, too."""
    operand: int = 1
    """Which operand of the call the weights are."""


def packed_form(kernel: str, attributes: Mapping[str, Any]) -> PackedForm | None:
    """How a call would have its weights packed, on this machine and for the library that is loaded.

    Args:
        kernel: the name of the call's kernel, such as onednn.matmul.
        attributes: all of the call's.

    Returns:
        None where the kernel has no packed weights, or reads these as they are.
    """
    known = registry.kernels().get(kernel)
    if known is None or not known.packed_by:
        return None
    asked = {name: value for name, value in attributes.items() if name not in _SAID_BY_THE_PLAN}
    asked["weights_format"] = "packed"
    planned = kernels.plan(kernel, asked)
    if isinstance(planned, Refusal) or not planned.packed_bytes:
        return None
    said = {"packed_bytes": planned.packed_bytes, "packed_layout": planned.packed_layout}
    call = asked | said | {"scratch": planned.scratch_bytes}
    pack = call | {"target": kernel}
    packing = kernels.plan(known.packed_by, pack | {"scratch": 0})
    if isinstance(packing, Refusal):
        return None
    scratch = packing.scratch_bytes
    target = registry.kernels()[known.packed_by].target
    return PackedForm(planned.packed_bytes, call, target, pack | {"scratch": scratch}, scratch)
