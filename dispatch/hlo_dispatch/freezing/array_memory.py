"""Memory of frozen arrays: views of JAX's arrays, aligned copies of NumPy's, and pages of mapped files.

JAX takes an aligned array of NumPy's over without copying it. What it takes of a caller's array is a view where that
is JAX's, whose elements never change, and a copy where it is NumPy's and is held.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import mmap
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import jax
import numpy
from jax.core import ShapedArray

from hlo_dispatch.freezing.archive import PAGE, aligned_memory
from hlo_dispatch.freezing.report import bytes_of
from hlo_dispatch.freezing.signature import is_key
from hlo_dispatch.process.large_pages import move_to_large_pages


def held_array(array: Any, dtype: Any) -> Any:
    """An array that outlives the caller's deletion, donation or overwriting of the original; shares JAX's memory.

    It is a view of NumPy's: XLA copies a donated buffer while such a view exists.

    Args:
        dtype: the program's element type of an array of NumPy's, whatever jax_enable_x64 is now.
    """
    return shared_array(array) if isinstance(array, jax.Array) else cast_array(array, dtype)


def shared_array(array: Any) -> Any:
    """A row-major array that outlives the caller's deletion of one of JAX's, and shares its memory."""
    if is_key(array.dtype):
        return jax.random.clone(array)
    return jax.device_put(numpy.asarray(array), committed_device(array), may_alias=True)


def passed_array(array: Any, dtype: Any) -> Any:
    """An array for one call; it shares the caller's memory where that is possible."""
    if isinstance(array, jax.Array):
        return shared_array(array)
    return jax.device_put(numpy.asarray(array, dtype), may_alias=True)


def cast_array(array: Any, dtype: Any) -> Any:
    """A copy of an array with elements rounded to a type."""
    values, kind = numpy.asarray(array), numpy.dtype(dtype)
    copy = aligned_memory(values.size * kind.itemsize).view(kind).reshape(values.shape)
    numpy.copyto(copy, values, casting="unsafe")
    return jax.device_put(copy, committed_device(array), may_alias=True)


def abstract_array(shape: Sequence[int], dtype: Any, device: Any) -> Any:
    """Abstract value of an array on this device; None: on any."""
    if device is None:
        return ShapedArray(tuple(shape), dtype)
    return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=jax.sharding.SingleDeviceSharding(device))


def traced_array(array: Any) -> Any:
    """What tracing needs of a frozen array: its abstract value as it is held, whatever layout it was created with."""
    if not isinstance(array, jax.Array):
        return abstract_array(array.shape, jax.dtypes.canonicalize_dtype(array.dtype), None)
    device = committed_device(array)
    # JAX takes what is abstract and committed to a device for narrower than it is, where its setting says so.
    if device is not None and not is_enabled_type(array.dtype):
        return shared_array(array)
    return abstract_array(array.shape, array.dtype, device)


def is_enabled_type(dtype: Any) -> bool:
    """Whether JAX's setting lets an array be of that type."""
    return is_key(dtype) or jax.dtypes.canonicalize_dtype(dtype) == dtype


def committed_device(array: Any) -> Any:
    """The device that an array is committed to; None: to none."""
    return next(iter(array.devices())) if isinstance(array, jax.Array) and array.committed else None


def address_of(array: Any) -> Hashable:
    """Identifies the buffer of one of JAX's arrays."""
    # Arrays of jax.random keys have no address.
    return id(array) if is_key(array.dtype) or not array.nbytes else array.unsafe_buffer_pointer()


def use_large_pages(arrays: Iterable[Any]) -> None:
    """Move arrays of JAX's into large pages, which takes longer than preprocessing them does."""
    numbers = [array for array in arrays if not is_key(array.dtype) and array.nbytes]
    jax.block_until_ready(numbers)
    move_to_large_pages({(array.unsafe_buffer_pointer(), bytes_of(array)) for array in numbers})


def forget_mapped_pages(array: Any) -> None:
    """Take the pages of an array in a mapped file out of the process's memory, where that can lose nothing.

    The next access reads them again, from the operating system's cache as long as they are there.
    """
    mapped = _read_only_mapping(array)
    if mapped is None or not array.nbytes or not hasattr(mmap, "MADV_DONTNEED"):
        return
    begin = numpy.frombuffer(mapped, numpy.uint8).ctypes.data
    low, high = numpy.lib.array_utils.byte_bounds(array)
    first, end = (low - begin) // PAGE * PAGE, high - begin
    mapped.madvise(mmap.MADV_DONTNEED, first, end - first)


def _read_only_mapping(array: Any) -> mmap.mmap | None:
    """The read-only mapping of a file in which an array of NumPy's is; a writable one may have unwritten changes."""
    base = array
    while isinstance(base, numpy.ndarray | memoryview):
        base = base.base if isinstance(base, numpy.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) and memoryview(base).readonly else None
