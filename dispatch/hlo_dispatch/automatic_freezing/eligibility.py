"""Eligibility: which arrays, and which functions, can be frozen without being asked."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from hlo_dispatch.freezing.signature import is_key
from hlo_dispatch.jax_plugin.forgotten_donation import IS_DONATION_KEPT

_COPIED_BYTES = 64 << 10
"""Bytes of donated leaves that may as well be copied: counters, sums of metrics."""
_UNSUPPORTED = ("in_shardings", "out_shardings", "device", "backend", "inline", "compiler_options")


def is_freezable(leaf: Any) -> bool:
    """Whether an argument is an array of JAX's that never changes: on one CPU, alive, row-major, of numbers.

    A weakly typed one stands for a number of Python's.
    NumPy's arrays and `jax.Ref`s change, tracers have no value, and keys of jax.random are answers' seeds.
    """
    if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer) or not hasattr(leaf, "unsafe_buffer_pointer"):
        return False
    if is_key(leaf.dtype) or leaf.weak_type or leaf.is_deleted():
        return False
    devices = leaf.devices()
    if len(devices) != 1 or next(iter(devices)).platform != "cpu":
        return False
    layout = getattr(getattr(leaf, "format", None), "layout", None)
    return layout is None or tuple(layout.major_to_minor) == tuple(range(leaf.ndim))


def refusal_of_options(options: Mapping[str, Any]) -> str:
    """Why a function jitted with these options is never frozen; empty: it may be."""
    named = [name for name in _UNSUPPORTED if not _is_unspecified(options.get(name))]
    return f"it is jitted with {', '.join(named)}" if named else ""


def _is_unspecified(option: Any) -> bool:
    """Whether an option is none, or a container of nothing but none, as shardings of `nnx.jit` are."""
    if isinstance(option, tuple | list | dict):
        return not jax.tree.leaves(option)
    return option is None or option is False


def refusal_of_leaves(leaves: Sequence[Any]) -> str:
    """Why a call with these leaves is never frozen; empty: it may be."""
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    if not all(isinstance(array.sharding, SingleDeviceSharding) for array in arrays):
        return "an argument lies on several devices, or on a mesh, where the result would be, too"
    if len({device for array in arrays if array.committed for device in array.devices()}) > 1:
        return "its arguments lie on different devices"
    return ""


def refusal_of_jaxpr(closed: Any) -> str:
    """Why a function of this jaxpr is never frozen; empty: it may be."""
    if closed.effects:
        return "it has side effects, or reads what changes (callbacks, jax.Ref)"
    return ""


def refusal_of_donation(donated: Sequence[Any]) -> str:
    """Why a call that donates these leaves is never frozen; empty: it may be."""
    if not IS_DONATION_KEPT and sum(getattr(leaf, "nbytes", 0) for leaf in donated) > _COPIED_BYTES:
        return "it donates arguments, which this jaxlib would copy in a frozen program (0.12 does not)"
    return ""
