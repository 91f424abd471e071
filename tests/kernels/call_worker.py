"""Runs calls that may end the process: one line of JSON in, one line out, until there is no more.

`python call_worker.py` is started by worker_pool.py. It answers ``{"ready": [targets]}`` first, then for each call
``{"error": text}``, ``{"right": true}``, or ``{"wrong": text}``: it ran, and the result is not what its attributes
say.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import attribute_meaning
import jax
import jax.numpy as jnp
import numpy as np
from calls import HashableArray
from wire_calls import LOADED, Array, Attributes, WireCall

from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import kernels, registry

DTYPES = {
    "f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128, "bf16": jnp.bfloat16,
    "f16": np.float16, "s16": np.int16, "s32": np.int32, "s64": np.int64, "u8": np.uint8, "s8": np.int8, "s4": jnp.int4,
    "pred": np.bool_, "u32": np.uint32, "u64": np.uint64,
}  # fmt: skip


WHOLE = {"s8": (-128, 127), "s4": (-8, 7)}


class HashableDict(dict):  # JAX compares what it lowers, nested dictionaries included
    def __hash__(self) -> int:
        return hash(tuple(self.items()))


_SCALARS = {"i64": np.int64, "i32": np.int32, "f32": np.float32, "f64": np.float64, "flag": np.bool_}


def register() -> list[str]:
    """Make every target known to JAX's CPU backend."""
    jax.devices("cpu")
    for name, kernel in registry.kernels().items():
        is_missing = isinstance(kernels.library(name), Unavailable)
        assert not is_missing or kernel.library == "oneMKL", name
    found = kernels.registrations()
    for name, capsules in found.types.items():
        jax.ffi.register_ffi_type(name, capsules, platform="cpu")
    for name, stages in found.targets.items():
        jax.ffi.register_ffi_target(name, stages, platform="cpu")
    return sorted(found.targets)


def attribute(kind: str, value: Any, version: str) -> Any:
    """As JAX lowers it."""
    if kind == "dictionary":
        return HashableDict(attributes(value, version))
    if kind == "text":
        return version if value == LOADED else value
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    return np.asarray(value, {"i64s": np.int64, "i32s": np.int32, "f32s": np.float32}[kind]).view(HashableArray)


def attributes(tagged: Attributes, version: str) -> dict[str, Any]:
    return {name: attribute(kind, value, version) for name, (kind, value) in tagged.items()}


def values(array: Array, seed: int) -> np.ndarray:
    """Random, and the same for the same seed; square matrices have a large diagonal."""
    drawn = np.random.default_rng(seed).standard_normal((2, *array.dims))
    dtype = np.dtype(DTYPES[array.type])
    if array.type == "u32":
        return np.random.default_rng(seed).integers(0, 1 << 32, array.dims, np.uint32)
    if array.type == "u8" and drawn.size % 8 == 0:  # packed weights: numbers, not any bytes
        return drawn[0].reshape(-1)[: drawn[0].size // 4].astype(np.float32).view(np.uint8).reshape(array.dims)
    if array.type in WHOLE:
        least, most = WHOLE[array.type]
        return np.clip(most / 3 * drawn[0], least, most).astype(np.int8).astype(dtype)
    made = drawn[0] + 1j * drawn[1] if dtype.kind == "c" else drawn[0]
    if len(array.dims) >= 2 and array.dims[-1] == array.dims[-2]:
        made = made + 3 * array.dims[-1] * np.eye(array.dims[-1])
    return made.astype(dtype)


def run(call: WireCall) -> dict[str, Any]:
    library = kernels.library(call.name)
    given = [values(array, number) for number, array in enumerate(call.operands)]
    shapes = [jax.ShapeDtypeStruct(tuple(array.dims), DTYPES[array.type]) for array in call.results]
    wire = attributes(call.attributes, library.version)
    function = jax.ffi.ffi_call(f"hlo_dispatch.{call.name}", shapes)
    try:
        found = jax.block_until_ready(jax.jit(lambda *operands: function(*operands, **wire))(*given))
    except jax.errors.JaxRuntimeError as error:
        return {"error": str(error)}
    wrong = attribute_meaning.difference(call, given, [np.asarray(result) for result in found])
    return {"wrong": wrong} if wrong else {"right": True}


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    print(json.dumps({"ready": register()}), flush=True)
    for number, line in enumerate(sys.stdin):
        fields = json.loads(line)
        for side in ("operands", "results"):
            fields[side] = [Array(**array) for array in fields[side]]
        print(json.dumps(run(WireCall(**fields))), flush=True)
        if number % 200 == 199:
            jax.clear_caches()


if __name__ == "__main__":
    main()
