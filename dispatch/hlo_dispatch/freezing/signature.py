"""Compilation key of a frozen function: shapes and types of the arguments, and JAX's trace context."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

import jax
from jax._src import config, core
from jax.core import Tracer

from hlo_dispatch.errors import FreezeError

trace_state_clean = core.trace_state_clean
"""Whether no trace (jax.grad, jax.vmap, jax.jit) is active."""
_NUMBERS = (bool, int, float, complex)


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Equal for two calls that jit would compile once."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    return (structure, config.trace_context(), *map(_kind, leaves))


def is_key(dtype: Any) -> bool:
    """Whether elements are jax.random keys, which NumPy does not have."""
    return jax.dtypes.issubdtype(dtype, jax.dtypes.extended)  # pyright: ignore[reportPrivateImportUsage]


def refuse_tensors(leaves: list[Any]) -> None:
    """Refuse tensors of PyTorch or torchax, which JAX does not take.

    Raises:
        FreezeError: there is one.
    """
    # A folder of that name beside a user's program is a module, too.
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is not None and any(isinstance(leaf, tensor) for leaf in leaves):
        raise FreezeError(
            "a frozen function takes JAX's arrays, and returns them, but an argument is a torch.Tensor: give it "
            "jnp.asarray(tensor.numpy(force=True)), or for a tensor of torchax torchax.interop.jax_view(tensor)"
        )


def refuse_several_devices(leaves: list[Any], what: str) -> None:
    """Refuse arrays on more than one device.

    Raises:
        FreezeError: there is one.
    """
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and len(leaf.sharding.device_set) > 1:
            raise FreezeError(
                f"{what} {jax.typeof(leaf).str_short()} lies on {len(leaf.sharding.device_set)} devices, and a frozen "
                "function runs on one: put it on one (jax.device_put), or use jax.jit here"
            )


def refuse_layouts(leaves: list[Any]) -> None:
    """Refuse arrays that are not row-major, for which programs are compiled.

    Raises:
        FreezeError: there is one.
    """
    for leaf in leaves:
        layout = getattr(getattr(leaf, "format", None), "layout", None)
        if layout is not None and tuple(layout.major_to_minor) != tuple(range(leaf.ndim)):
            raise FreezeError(
                f"an argument {jax.typeof(leaf).str_short()} has a layout of its own, {layout.major_to_minor}: give it "
                "the usual one (jax.device_put without a layout), or use jax.jit here"
            )


def _kind(leaf: Any) -> Hashable:
    if isinstance(leaf, jax.Array):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    if isinstance(leaf, _NUMBERS):
        return type(leaf)
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return type(leaf)
    # jit converts it to an array of JAX's own.
    return leaf.shape, dtype if is_key(dtype) else jax.dtypes.canonicalize_dtype(dtype), _is_weak(leaf)


def _is_weak(leaf: Any) -> bool:
    """Whether an example of an argument stands for a weakly typed one."""
    return isinstance(leaf, jax.ShapeDtypeStruct) and bool(leaf.weak_type)
