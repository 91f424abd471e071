"""One program of a frozen function: what was prepared for it, and how it is run."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy
from jax.core import ShapedArray

from hlo_dispatch.autotune.run.inputs import dtype_of
from hlo_dispatch.freezing.call_form import CallForm
from hlo_dispatch.freezing.guard import built
from hlo_dispatch.freezing.narrowing import Narrowing
from hlo_dispatch.freezing.report import FrozenValue, ProgramReport
from hlo_dispatch.freezing.signature import is_key
from hlo_dispatch.freezing.stand_in import StandIn
from hlo_dispatch.freezing.tracing import whole
from hlo_dispatch.hlo.split import Split
from hlo_dispatch.jax_plugin.explaining import pass_in_place

_FRUGAL = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""XLA would rather do everything at once, and hold all that lies between weights and what is made of them."""


@dataclass(frozen=True)
class Program:
    """For one signature; safe to call from several threads."""

    signature: str
    split: Split
    preparation: StandIn | None
    program: StandIn
    form: CallForm
    """What `program` takes besides its arrays, and what it returns."""
    constants: Sequence[Any]
    """What the function closes over: frozen, too, behind the arrays that were given."""
    names: Sequence[str]
    """Of the frozen arrays, the constants among them."""
    types: Sequence[Any]
    """Of their elements, as they are given."""
    narrow: Mapping[int, Any]
    """Those that are held in another type, by number, and in which."""
    held: Mapping[Hashable, tuple[Any, ...]] = field(default_factory=dict)
    """What the program takes before a call's arguments, by what it was made of."""
    arrays: tuple[Any, ...] = ()
    """The same, one after the other."""

    @classmethod
    def made(
        cls,
        fn: Callable[..., Any],
        originals: Sequence[Any],
        names: Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        form: str | None = None,
    ) -> Program:
        """Compile `fn(originals, *args, **kwargs)` up to where its program is built; nothing is prepared.

        Args:
            form: as what weights are held (narrowing.FORMS); None: as they are.

        Raises:
            FreezeError: as `whole`.
            Exception: what tracing the function raises.
        """
        # As they are kept: of whatever layout they were made, they lie row by row then.
        rewriter = pass_in_place()
        narrowing = Narrowing.on(rewriter.machine, form)
        found = whole(fn, [_kept(array) for array in originals], args, kwargs, narrowing)
        frozen = frozenset(range(len(originals) + len(found.constants)))
        split = built(found.module, frozen, rewriter, found.widened)
        preparation = None
        if split.preparation is not None:
            results = [ShapedArray(value.shape.dimensions, dtype_of(value.shape)) for value in split.prepared]
            preparation = StandIn(split.preparation, results, jax.tree.structure(tuple(results)), _FRUGAL)
        program = StandIn(split.program, found.results, found.structure)
        call_form = CallForm(found.arguments, jax.tree.structure((args, kwargs)), found.results, found.structure)
        closed = [f" (closed over: {jax.typeof(constant).str_short()})" for constant in found.constants]
        names = [*names, *closed]
        return cls(
            found.signature, split, preparation, program, call_form, found.constants, names, found.types, found.narrow
        )

    def prepared(self, originals: Sequence[Any], held: Mapping[Hashable, tuple[Any, ...]]) -> Program:
        """The same with these arrays, prepared.

        Args:
            held: what other programs hold of the same arrays.
        """
        frozen = [_typed(array, kind) for array, kind in zip((*originals, *self.constants), self.types, strict=True)]
        # A constant is not the same number in every program.
        names: list[Hashable] = [*range(len(originals)), *map(id, self.constants)]
        for number, dtype in self.narrow.items():
            names[number] = names[number], dtype
        narrowed: dict[Hashable, Any] = {}

        def kept(number: int) -> Any:
            if number not in self.narrow:
                return _kept(frozen[number])
            # Weights that are tied stay one array.
            key = id(frozen[number]), self.narrow[number]
            if key not in narrowed:
                narrowed[key] = _narrowed(frozen[number], self.narrow[number])
            return narrowed[key]

        own: dict[Hashable, tuple[Any, ...]] = {}
        # What XLA has made inside of a module may be wider than the user's setting lets an array be.
        with jax.enable_x64(True):
            if self.preparation is not None:
                key = (self.preparation.name, *(names[number] for number in self.split.read))
                # As they are kept, for all are of one kind then: weakly typed or not, they compile once.
                own[key] = held.get(key) or self.preparation.compile_and_run(
                    [kept(number) for number in self.split.read]
                )
            for number in self.split.kept:
                own[names[number]] = held.get(names[number]) or (kept(number),)
        return replace(self, held=own, arrays=tuple(itertools.chain.from_iterable(own.values())))

    @property
    def bytes_held(self) -> dict[Hashable, int]:
        """Size of each piece of memory that is held, by where it is."""
        return {_address(array): array.nbytes for array in self.arrays}

    @cached_property
    def report(self) -> ProgramReport:
        """What was prepared into what."""
        prepared = [
            FrozenValue(value.origin, str(value.shape), array.nbytes, value.is_packed)
            for value, array in zip(self.split.prepared, self.arrays, strict=False)
        ]
        kept = [
            FrozenValue(self.names[number].lstrip(), jax.typeof(array).str_short(short_dtypes=True), array.nbytes)
            for number, array in zip(self.split.kept, self.arrays[len(prepared) :], strict=True)
        ]
        return ProgramReport(self.signature, tuple(prepared), tuple(kept), self.split.report, len(self.narrow))


def _address(array: Any) -> Hashable:
    # What are keys to JAX has no address.
    return id(array) if is_key(array.dtype) or not array.nbytes else array.unsafe_buffer_pointer()


def _typed(array: Any, kind: Any) -> Any:
    """NumPy's arrays as the program takes them, whatever the setting is now."""
    return array if isinstance(array, jax.Array) else numpy.asarray(array, kind)


def _kept(array: Any) -> Any:
    """An array that lives on when the caller deletes, donates or overwrites the one it was; it shares JAX's memory.

    A view of NumPy's does so: XLA copies what is donated while such a view exists.
    """
    if not isinstance(array, jax.Array):
        # JAX may still be reading from the user's when this returns.
        return jax.device_put(numpy.array(array), may_alias=True)
    if is_key(array.dtype):
        return jax.random.clone(array)
    return jax.device_put(numpy.asarray(array), _device(array), may_alias=True)


def _narrowed(array: Any, dtype: Any) -> Any:
    """An array of our own, with elements that are rounded to another type."""
    return jax.device_put(numpy.asarray(array).astype(dtype), _device(array), may_alias=True)


def _device(array: Any) -> Any:
    return next(iter(array.devices())) if isinstance(array, jax.Array) and array.committed else None
