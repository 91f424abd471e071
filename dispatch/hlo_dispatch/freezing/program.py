"""One program of a frozen function: what was prepared for it, and how it is run."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy
from jax.core import ShapedArray

from hlo_dispatch.autotune.run.inputs import dtype_of
from hlo_dispatch.freezing.call_signature import CallForm
from hlo_dispatch.freezing.placeholder_executable import StandIn
from hlo_dispatch.freezing.reduced_precision import Narrowing
from hlo_dispatch.freezing.report import FrozenValue, ProgramReport, bytes_of
from hlo_dispatch.freezing.signature import is_key
from hlo_dispatch.freezing.stock_fallback import built
from hlo_dispatch.freezing.tracing import whole
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.jax_plugin.explaining import pass_in_place
from hlo_dispatch.passes.partition.prologue_stages import PreparationPart, in_parts
from hlo_dispatch.process.large_pages import move_to_large_pages
from hlo_dispatch.process.retained_memory import return_free_memory

_FRUGAL = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""XLA would rather do everything at once, and hold all that lies between weights and what is made of them."""


@dataclass(frozen=True)
class Program:
    """For one signature; safe to call from several threads."""

    signature: str
    split: Split
    parts: Sequence[PreparationPart]
    preparations: Sequence[StandIn]
    """Of each part."""
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
    """Those that are given to it in another type, by number, and in which."""
    smaller: int
    """How many of them are held in fewer bytes."""
    not_narrowed: Mapping[int, str]
    """Those that were to be, by number, and why they are not."""
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
        *,
        donate: bool = False,
    ) -> Program:
        """Compile `fn(originals, *args, **kwargs)`; nothing is prepared.

        What cannot be built or compiled is stock's program, which reads the arrays as they are.

        Args:
            form: as what weights are held (narrowing.FORMS); None: as they are.
            donate: whether it will be prepared so: in parts then.

        Raises:
            FreezeError: as `whole`.
            Exception: what tracing the function raises, and compiling stock's program.
        """
        # As they are kept: of whatever layout they were made, they lie row by row then.
        rewriter = pass_in_place()
        narrowing = Narrowing.on(rewriter.machine, form)
        found = whole(fn, [_kept(array) for array in originals], args, kwargs, narrowing)
        frozen = frozenset(range(len(originals) + len(found.constants)))
        taken = jax.tree.structure((args, kwargs))
        call_form = CallForm(found.arguments, taken, found.results, found.structure, found.donated)
        closed = [f" (closed over: {jax.typeof(constant).str_short()})" for constant in found.constants]

        def compiled(split: Split) -> Program:
            parts = in_parts(split, is_one=not donate)
            preparations = [_preparation(part, split) for part in parts]
            program = StandIn(split.program, found.results, found.structure, donated=found.donated)
            made = cls(
                found.signature, split, parts, preparations, program, call_form, found.constants, [*names, *closed],
                found.types, found.narrow, found.smaller, found.not_narrowed,
            )  # fmt: skip
            made.compile(originals, args, kwargs)
            return made

        return built(found.module, frozen, rewriter, found.widened, compiled)

    def compile(self, originals: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have XLA make the code of all of it, for arrays like these: whatever fails fails before one is touched."""
        frozen = (*originals, *self.constants)
        made = self.compile_preparation(originals)
        kept = [self._abstract(frozen, number) for number in self.split.kept]
        arrays = (*(made[number] for number in range(len(made))), *kept)
        # JAX takes what is abstract and committed to a device for narrower than it is, where its setting says so.
        if all(isinstance(array, ShapedArray) or _is_usual(array.dtype) for array in arrays):
            self.program.compile(arrays, *args, **kwargs)

    def compile_preparation(self, originals: Sequence[Any]) -> dict[int, Any]:
        """Compile what prepares arrays like these; gives the abstract value of each that it makes, by its number."""
        frozen, made = (*originals, *self.constants), dict[int, Any]()
        with jax.enable_x64(True):
            for part, preparation in zip(self.parts, self.preparations, strict=True):
                preparation.compile([self._abstract(frozen, number) for number in part.read])
                device = next(filter(None, (_device(frozen[number]) for number in part.read)), None)
                for number in part.made:
                    shape = self.split.prepared[number].shape
                    made[number] = _abstract(shape.dimensions, dtype_of(shape), device)
        return made

    def _abstract(self, frozen: Sequence[Any], number: int) -> Any:
        """One of the frozen arrays as it is given to the program or the preparation."""
        array = frozen[number]
        return _abstract(array.shape, self.narrow.get(number, self.types[number]), _device(array))

    def prepared(
        self, originals: Sequence[Any], held: Mapping[Hashable, tuple[Any, ...]], *, donate: bool = False
    ) -> Program:
        """The same with these arrays, prepared.

        Args:
            held: what other programs hold of the same arrays.
            donate: delete each of JAX's arrays among the originals as soon as no part that is left reads it.
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
        made: dict[int, Any] = {}
        # What XLA has made inside of a module may be wider than the user's setting lets an array be.
        with jax.enable_x64(True):
            for number in self.split.kept:
                own[names[number]] = held.get(names[number]) or (kept(number),)
            as_they_are = list(itertools.chain.from_iterable(own.values()))
            for place, (part, preparation) in enumerate(zip(self.parts, self.preparations, strict=True)):
                key = (preparation.name, *(names[number] for number in part.read))
                # As they are kept, for all are of one kind then: weakly typed or not, they compile once.
                own[key] = held.get(key) or preparation.compile_and_run([kept(number) for number in part.read])
                made.update(zip(part.made, own[key], strict=True))
                needed = {id(frozen[number]) for later in self.parts[place + 1 :] for number in later.read}
                done = [number for number in part.read if id(frozen[number]) not in needed]
                for number in done:
                    narrowed.pop((id(frozen[number]), self.narrow.get(number)), None)
                if donate:
                    jax.block_until_ready(own[key])
                    self._delete(frozen[number] for number in done)
                    # malloc may keep what is deleted in its heap, where the next part's larger arrays do not fit.
                    return_free_memory()
        if donate:
            self._delete(originals)
        return replace(self, held=own, arrays=(*(made[number] for number in range(len(made))), *as_they_are))

    def settle(self) -> None:
        """Have its arrays lie where they are read fastest, which takes longer than preparing them does."""
        numbers = [array for array in self.arrays if not is_key(array.dtype) and array.nbytes]
        jax.block_until_ready(numbers)
        move_to_large_pages({(array.unsafe_buffer_pointer(), bytes_of(array)) for array in numbers})

    def _delete(self, arrays: Iterable[Any]) -> None:
        """Whoever else holds them; memory that is shared with what is kept goes with that."""
        constants = set(map(id, self.constants))
        for array in arrays:
            if isinstance(array, jax.Array) and id(array) not in constants and not array.is_deleted():
                array.delete()

    @property
    def bytes_held(self) -> dict[Hashable, int]:
        """Size of each piece of memory that is held, by where it is."""
        return {_address(array): bytes_of(array) for array in self.arrays}

    @cached_property
    def report(self) -> ProgramReport:
        """What was prepared into what."""
        prepared = [
            FrozenValue(value.origin, str(value.shape), bytes_of(array), value.is_packed)
            for value, array in zip(self.split.prepared, self.arrays, strict=False)
        ]
        kept = [
            FrozenValue(self.names[number].lstrip(), jax.typeof(array).str_short(short_dtypes=True), bytes_of(array))
            for number, array in zip(self.split.kept, self.arrays[len(prepared) :], strict=True)
        ]
        wide = {self.names[number].lstrip(): why for number, why in self.not_narrowed.items()}
        return ProgramReport(self.signature, tuple(prepared), tuple(kept), self.split.report, self.smaller, wide)


def _preparation(part: PreparationPart, split: Split) -> StandIn:
    shapes = [split.prepared[number].shape for number in part.made]
    results = [ShapedArray(shape.dimensions, dtype_of(shape)) for shape in shapes]
    return StandIn(part.module, results, jax.tree.structure(tuple(results)), _FRUGAL)


def _abstract(shape: Sequence[int], dtype: Any, device: Any) -> Any:
    """What jit goes by of an array that lies on this device, or, if None, that may lie on any."""
    if device is None:
        return ShapedArray(tuple(shape), dtype)
    return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=jax.sharding.SingleDeviceSharding(device))


def _is_usual(dtype: Any) -> bool:
    """Whether JAX's setting lets an array be of that type."""
    return is_key(dtype) or jax.dtypes.canonicalize_dtype(dtype) == dtype


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
