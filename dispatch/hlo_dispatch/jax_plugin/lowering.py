"""Lowering of user functions: plain, jitted in any way, or JAX's own stages, to `jax.stages.Lowered`.

A jitted function's own `lower` keeps its static and donated arguments, which a wrapper would lose. Equinox and Flax
wrap JAX's stages in their own.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import contextlib
import functools
import itertools
import os
import types
from typing import Any

from hlo_dispatch.errors import HloDispatchError

_TAKEN = (
    "a function, a jitted one (jax.jit, eqx.filter_jit, nnx.jit), or what lowering or compiling one gave "
    "(jax.stages.Traced, Lowered, Compiled)"
)
# Has no effect on a CPU, and is part of the key of JAX's caches, in memory and on disk.
_UNIQUE_OPTION = "xla_gpu_kernel_cache_file"
_numbers = itertools.count()


def compiled_stage(fn: Any) -> Any | None:
    """The `jax.stages.Compiled` that `fn` is, or that another package's stage wraps; None: it is neither."""
    import jax

    inner = getattr(fn, "compiled", None)
    return next((stage for stage in (fn, inner) if isinstance(stage, jax.stages.Compiled)), None)


def lowered_stage(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Lower `fn(*args, **kwargs)`; nothing runs.

    Raises:
        HloDispatchError: `fn` cannot be lowered, or it is lowered already and there are arguments.
        Exception: what tracing the function raises.
    """
    import jax

    stage = _as_lowered(fn)
    if stage is not None or isinstance(fn, jax.stages.Traced):
        refuse_arguments(fn, args, kwargs)
        return stage if stage is not None else fn.lower()
    if isinstance(fn, functools.partial) and hasattr(fn.func, "lower"):
        return lowered_stage(fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})
    if isinstance(fn, types.MethodType) and hasattr(fn.__func__, "lower"):
        return lowered_stage(fn.__func__, (fn.__self__, *args), kwargs)
    lower: Any = getattr(fn, "lower", None)
    if callable(lower) and callable(fn):
        stage = _as_lowered(lower(*args, **kwargs))
        if stage is not None:
            return stage
    if not callable(fn):
        raise HloDispatchError(f"{type(fn).__name__} is not something to compile; this takes {_TAKEN}")
    return _lowered_plain(fn, args, kwargs)


def refuse_arguments(stage: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse arguments of a stage that has its own.

    Raises:
        HloDispatchError: there are arguments.
    """
    if args or kwargs:
        name = type(stage).__name__
        raise HloDispatchError(f"a {name} has its arguments already: pass it alone, or the function with arguments")


def compile_afresh(lowered: Any) -> None:
    """Compile without JAX's caches, and discard the result."""
    with _without_persistent_cache():
        lowered.compile(compiler_options={_UNIQUE_OPTION: f"hlo_dispatch {os.getpid()} {next(_numbers)}"})


def name_of(lowered: Any) -> str:
    """The name of a lowered function's module."""
    return str(lowered.compiler_ir().operation.attributes["sym_name"].value)


def _as_lowered(fn: Any) -> Any | None:
    import jax

    inner = getattr(fn, "lowered", None)
    return next((stage for stage in (fn, inner) if isinstance(stage, jax.stages.Lowered)), None)


def _lowered_plain(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Lower a plain function; leaves that jax.jit does not take (a string, a function) are static."""
    import jax

    leaves, structure = jax.tree.flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if _is_traced(leaf)]

    def on_arrays(*arrays: Any) -> Any:
        filled = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            filled[place] = array
        args, kwargs = jax.tree.unflatten(structure, filled)
        return fn(*args, **kwargs)

    on_arrays.__name__ = on_arrays.__qualname__ = getattr(fn, "__name__", type(fn).__name__)
    return jax.jit(on_arrays).lower(*(leaves[place] for place in places))


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _without_persistent_cache() -> contextlib.AbstractContextManager[Any]:
    """Disable writes to the persistent cache inside the block."""
    try:
        from jax._src import config

        return config.persistent_cache_min_compile_time_secs(float("inf"))
    except (ImportError, AttributeError, TypeError):
        return contextlib.nullcontext()
