"""Kernel calls with prepacked weights, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from calls import Call, attribute

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import registry
from hlo_dispatch.vendor.prepacking import PrepackedCall, prepacked_call

WEIGHTS_OPERAND = 1
"""Which operand of these kernels' calls the weights are."""


def written(call: Call) -> dict[str, Any]:
    """The attributes of the call as the pass would write them."""
    planned = call.planned()
    assert not isinstance(planned, Refusal), planned
    return call.asked() | {"scratch": planned.scratch_bytes}


def prepacked_call_of(call: Call) -> PrepackedCall | None:
    """How the call would have its weights packed."""
    return prepacked_call(call.name, written(call))


def custom_call(target: str, attributes: Mapping[str, Any], result: jax.ShapeDtypeStruct) -> Callable[..., Any]:
    """A jitted function of the operands."""
    wire = {name: attribute(value) for name, value in attributes.items() if value is not None}
    results = (result, jax.ShapeDtypeStruct((int(attributes["scratch"] or 0),), np.uint8))
    return jax.jit(lambda *operands: jax.ffi.ffi_call(target, results)(*operands, **wire)[0])


def packing(form: PrepackedCall, **changes: Any) -> Callable[..., Any]:
    """What packs the weights; `changes` replace attributes (None: leaves one out)."""
    return custom_call(
        form.prepack_target, {**form.prepack_attributes, **changes}, jax.ShapeDtypeStruct((form.bytes,), np.uint8)
    )


def reading(call: Call, form: PrepackedCall, **changes: Any) -> Callable[..., Any]:
    """The call on packed weights; `changes` likewise."""
    memory_dims = tuple(call.result_dims[axis] for axis in call.result_layout)
    result = jax.ShapeDtypeStruct(memory_dims, call.result_dtype)
    return custom_call(registry.kernels()[call.name].target, {**form.call, **changes}, result)


def with_prepacked(call: Call, packed: Any) -> list[Any]:
    """The operands of the call on packed weights."""
    return [*call.operands[:WEIGHTS_OPERAND], packed, *call.operands[WEIGHTS_OPERAND + 1 :]]


def run_prepacked(call: Call, form: PrepackedCall) -> np.ndarray:
    """Packed, then read: the logical result, in float64."""
    packed = packing(form)(call.operands[WEIGHTS_OPERAND])
    return call.logical(reading(call, form)(*with_prepacked(call, packed)))
