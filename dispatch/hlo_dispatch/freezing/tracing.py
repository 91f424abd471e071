"""Tracing of a frozen function: its optimized module, with all frozen arrays as leading parameters."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from hlo_dispatch.autotune.run.executable import placeholder_name, shown
from hlo_dispatch.driver.frozen_build import FrozenModule
from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.array_memory import traced_array
from hlo_dispatch.freezing.closures import arrays_in, evaluated
from hlo_dispatch.freezing.donation import donated_arguments, leaves_of
from hlo_dispatch.freezing.gated_units import may_have_gated_units, with_split_products
from hlo_dispatch.freezing.reduced_precision import NarrowedFunction, Narrowing, narrowed
from hlo_dispatch.freezing.stock_fallback import attempted_or_skipped
from hlo_dispatch.freezing.weight_only_quantization import with_integers
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.lowering import compile_afresh

_CALLBACK = "callback"
_SWITCH = (
    "A frozen function's arguments are traced, as jit's are: a switch of Python's belongs into the function, as in "
    "freeze(lambda p, x: model.apply(p, x, train=False), p)"
)
_numbers = itertools.count()


@dataclass(frozen=True)
class TracedModule:
    """The optimized module of a function, and its signature."""

    module: Module
    """Its parameters are the frozen arrays, the constants, then the other arguments' leaves."""
    constants: Sequence[Any]
    """Arrays that the function closes over."""
    results: Sequence[Any]
    """Abstract values of the results."""
    structure: Any
    """Pytree structure of the results."""
    arguments: Sequence[Any]
    """Abstract values of the leaves of the arguments that are not frozen."""
    signature: str
    """Signature of the remaining arguments, for reports."""
    types: Sequence[Any]
    """Element types of the frozen arrays and the constants; `narrow` has the exceptions in the module."""
    narrow: Mapping[int, Any]
    """Narrowed frozen arrays and constants: number → element type in the module."""
    widened: frozenset[int]
    """Numbers of those that the module widens for products, or quantizes to integers."""
    smaller: int
    """Number of frozen arrays and constants that are stored in fewer bytes."""
    not_narrowed: Mapping[int, str]
    """Weights that are not narrowed despite the request: number → why not."""
    rounded_products: int
    """Number of products whose activations are rounded to eight bits."""
    donated: tuple[int, ...]
    """Numbers of the donated positional arguments."""

    @property
    def frozen_module(self) -> FrozenModule:
        """The module with its frozen parameters: the frozen arrays and the constants."""
        return FrozenModule(self.module, frozenset(range(len(self.types))), self.widened)


def traced_module(
    fn: Callable[..., Any],
    frozen: Sequence[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    narrowing: Narrowing | None = None,
) -> TracedModule:
    """Trace `fn(frozen, *args, **kwargs)` and have XLA optimize it; nothing runs.

    Args:
        narrowing: narrowing of weights; None: none.

    Raises:
        FreezeError: it calls back into Python, closes over a traced array, or does not run on a CPU.
        Exception: what tracing the function raises.
    """
    name = getattr(fn, "__name__", type(fn).__name__)
    frozen = list(map(traced_array, frozen))
    try:
        traced = jax.jit(fn).trace(frozen, *args, **kwargs)
    except jax.errors.ConcretizationTypeError as error:
        error.add_note(_SWITCH)
        raise
    closed, rest = traced.jaxpr, jax.tree.leaves((args, kwargs))
    if len(closed.in_avals) > len(frozen) + len(rest):
        # Traced arrays that it closes over are operands.
        raise FreezeError(
            f"{name} cannot be frozen: it closes over an array that is traced (inside of jax.jit, jax.grad or "
            "jax.vmap), so its value is not known: give it as an argument, and let no such array out of its function"
        )
    constants = arrays_in(closed)
    numbers = {id(constant): number for number, constant in enumerate(constants)}

    def replay(frozen: Any, constants: Any, rest: Any) -> Any:
        return evaluated(closed, lambda constant: constants[numbers[id(constant)]], (*frozen, *rest), numbers)

    given: tuple[list[Any], ...] = (frozen, constants, rest)
    function, less = replay, NarrowedFunction(lambda: [], frozenset(), frozenset())
    count = len(frozen) + len(constants)
    donated = donated_arguments(closed, len(frozen), args)
    taken_over = leaves_of(donated, args)
    shown_as = placeholder_name(f"whole_{os.getpid()}_{next(_numbers)}")
    lowered = None
    if narrowing is None and may_have_gated_units(closed):
        lowered = attempted_or_skipped(
            lambda: _lowered(_with_split_gated_units(replay, given), shown_as, given, taken_over), "gated units"
        )
    if narrowing is not None:
        less = _narrowed(jax.make_jaxpr(replay)(*given), len(frozen), count, narrowing)
        flat = [
            _of_type(narrowing.dtype, array) if number in less.narrow else array
            for number, array in enumerate(itertools.chain.from_iterable(given))
        ]
        given = flat[: len(frozen)], flat[len(frozen) : count], flat[count:]

        def function(frozen: Any, constants: Any, rest: Any) -> Any:
            return less.function(*frozen, *constants, *rest)

    if lowered is None:
        lowered = _lowered(function, shown_as, given, taken_over)
    with shown(shown_as) as modules:
        compile_afresh(lowered)
    if not modules:
        raise FreezeError(f"{name} cannot be frozen: it is not compiled for a CPU")
    module = modules[-1]
    refuse_callbacks(name, module)
    count, wanted = len(module.entry.program_shape.parameters), len(frozen) + len(constants) + len(rest)
    if count != wanted:
        raise FreezeError(f"{name} cannot be frozen: JAX gives it {count} parameters for {wanted} arrays")
    module.proto.name = f"jit_{name}" if name.isidentifier() else "jit_frozen"
    arguments = closed.in_avals[len(frozen) :]
    taken = [aval.str_short(short_dtypes=True) for aval in arguments]
    types = [aval.dtype for aval in closed.in_avals[: len(frozen)]] + [jax.typeof(array).dtype for array in constants]
    structure = traced.out_tree
    narrow = dict.fromkeys(sorted(less.narrow), narrowing.dtype) if narrowing is not None else {}
    results = closed.out_avals
    signature = ", ".join(taken)
    widened, smaller = less.widened | less.integers, len(less.narrow | less.integers)
    return TracedModule(
        module, constants, results, structure, arguments, signature, types, narrow, widened, smaller,
        less.kept, less.rounded_products, donated,
    )  # fmt: skip


def _narrowed(closed: Any, arguments: int, frozen: int, narrowing: Narrowing) -> NarrowedFunction:
    """Narrow the weights among the frozen arrays of a closed jaxpr; the first of these are arguments."""
    if not narrowing.is_integer:
        return narrowed(closed, range(frozen), narrowing)
    # A table that the function closes over may hold cosines, not weights.
    return with_integers(closed, range(frozen), range(arguments), narrowing)


def _lowered(function: Callable[..., Any], name: str, given: tuple[list[Any], ...], donated: Sequence[int]) -> Any:
    """Lower `function(frozen, constants, rest)`, with these leaves of the rest donated."""

    def flattened(frozen: Any, constants: Any, *rest: Any) -> Any:
        return function(frozen, constants, list(rest))

    flattened.__name__ = flattened.__qualname__ = name
    frozen, constants, rest = given
    jitted = jax.jit(flattened, keep_unused=True, donate_argnums=tuple(2 + number for number in donated))
    return jitted.trace(frozen, constants, *rest).lower()


def _with_split_gated_units(function: Callable[..., Any], given: tuple[list[Any], ...]) -> Callable[..., Any]:
    """The function with split gated units; itself where it has none."""
    frozen, constants, _ = given
    parted = with_split_products(jax.make_jaxpr(function)(*given), len(frozen) + len(constants))
    if parted is None:
        return function

    def with_split_gated_units(frozen: Any, constants: Any, rest: Any) -> Any:
        return parted(*frozen, *constants, *rest)

    return with_split_gated_units


def _of_type(dtype: Any, array: Any) -> Any:
    is_committed = array.committed if isinstance(array, jax.Array) else isinstance(array, jax.ShapeDtypeStruct)
    sharding = array.sharding if is_committed else None
    return jax.ShapeDtypeStruct(array.shape, dtype, sharding=sharding)


def refuse_callbacks(name: str, module: Module) -> None:
    """Refuse a module that calls back into Python; raises FreezeError."""
    if any(_CALLBACK in target for target in module.custom_call_targets):
        raise FreezeError(
            f"{name} cannot be frozen: it calls back into Python (jax.debug.print, io_callback, pure_callback); take "
            "that out, or use jax.jit"
        )
