"""Program of a frozen function for one call signature: prologue, preprocessed weights, steady-state program."""

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
from hlo_dispatch.freezing.call_signature import CallSignature
from hlo_dispatch.freezing.placeholder_executable import PlaceholderExecutable
from hlo_dispatch.freezing.reduced_precision import Narrowing
from hlo_dispatch.freezing.report import FrozenValue, ProgramReport, bytes_of
from hlo_dispatch.freezing.signature import is_key
from hlo_dispatch.freezing.stock_fallback import built_or_stock
from hlo_dispatch.freezing.tracing import traced_module
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.jax_plugin.explaining import active_pass
from hlo_dispatch.passes.partition.prologue_stages import PrologueStage, split_into_stages
from hlo_dispatch.process.large_pages import move_to_large_pages
from hlo_dispatch.process.retained_memory import return_free_memory

MEMORY_OPTIMIZED = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""XLA's default scheduler favours parallelism, and holds all intermediate values of weight preprocessing at once."""


@dataclass(frozen=True)
class Program:
    """Prologue and steady-state program of one call signature, and the arrays that the latter holds; thread-safe."""

    signature: str
    split: Split
    stages: Sequence[PrologueStage]
    prologue_executables: Sequence[PlaceholderExecutable]
    """Of each stage."""
    program: PlaceholderExecutable
    call_signature: CallSignature
    """Arguments of `program` besides its arrays, and its results."""
    constants: Sequence[Any]
    """Arrays that the function closes over: frozen as well, after those that were given."""
    names: Sequence[str]
    """Of the frozen arrays, the constants among them."""
    types: Sequence[Any]
    """Of their elements, as they are given."""
    narrow: Mapping[int, Any]
    """Frozen arrays that the module has in another element type: number → type."""
    smaller: int
    """Number of frozen arrays that are stored in fewer bytes."""
    not_narrowed: Mapping[int, str]
    """Weights that are not stored in fewer bytes: number → why not."""
    arrays_by_source: Mapping[Hashable, tuple[Any, ...]] = field(default_factory=dict)
    """Leading arguments of the steady-state program, by what they were computed from."""
    arrays: tuple[Any, ...] = ()
    """The same, in the program's order."""

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        originals: Sequence[Any],
        names: Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        weight_format: str | None = None,
        *,
        donate: bool = False,
    ) -> Program:
        """Compile `fn(originals, *args, **kwargs)`; no weight is preprocessed.

        Where building or compiling fails, the program is stock XLA's, which reads the arrays as they are.

        Args:
            weight_format: how weights are stored (reduced_precision.WEIGHT_FORMATS); None: as they are.
            donate: whether it will be prepared so: in stages then.

        Raises:
            FreezeError: as `traced_module`.
            Exception: what tracing the function raises, and compiling stock's program.
        """
        # As they are held later: row-major, whatever layout they were created with.
        pipeline = active_pass()
        narrowing = Narrowing.on(pipeline.machine, weight_format)
        found = traced_module(fn, [_shared_array(array) for array in originals], args, kwargs, narrowing)
        frozen = frozenset(range(len(originals) + len(found.constants)))
        taken = jax.tree.structure((args, kwargs))
        call_signature = CallSignature(found.arguments, taken, found.results, found.structure, found.donated)
        closed = [f" (closed over: {jax.typeof(constant).str_short()})" for constant in found.constants]

        def compiled(split: Split) -> Program:
            stages = split_into_stages(split, is_single=not donate)
            prologue_executables = [_prologue_executable(stage, split) for stage in stages]
            executable = PlaceholderExecutable(split.program, found.results, found.structure, donated=found.donated)
            program = cls(
                found.signature, split, stages, prologue_executables, executable, call_signature, found.constants,
                [*names, *closed], found.types, found.narrow, found.smaller, found.not_narrowed,
            )  # fmt: skip
            program.compile(originals, args, kwargs)
            return program

        return built_or_stock(found.module, frozen, pipeline, found.widened, compiled)

    def compile(self, originals: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile prologue and program for arrays like these, so that a failure comes before an array is deleted."""
        frozen = (*originals, *self.constants)
        made = self.compile_prologue(originals)
        kept = [self._abstract(frozen, number) for number in self.split.frozen_inputs]
        arrays = (*(made[number] for number in range(len(made))), *kept)
        # JAX takes what is abstract and committed to a device for narrower than it is, where its setting says so.
        if all(isinstance(array, ShapedArray) or _is_enabled_type(array.dtype) for array in arrays):
            self.program.compile(arrays, *args, **kwargs)

    def compile_prologue(self, originals: Sequence[Any]) -> dict[int, Any]:
        """Compile the prologue for arrays like these; returns the abstract value of each of its results, by number."""
        frozen, made = (*originals, *self.constants), dict[int, Any]()
        with jax.enable_x64(True):
            for stage, prologue in zip(self.stages, self.prologue_executables, strict=True):
                prologue.compile([self._abstract(frozen, number) for number in stage.parameters])
                device = next(filter(None, (_device(frozen[number]) for number in stage.parameters)), None)
                for number in stage.results:
                    shape = self.split.preprocessed[number].shape
                    made[number] = _abstract(shape.dimensions, dtype_of(shape), device)
        return made

    def _abstract(self, frozen: Sequence[Any], number: int) -> Any:
        """Abstract value of a frozen array, as the program or the prologue takes it."""
        array = frozen[number]
        return _abstract(array.shape, self.narrow.get(number, self.types[number]), _device(array))

    def with_weights(
        self, originals: Sequence[Any], arrays_by_source: Mapping[Hashable, tuple[Any, ...]], *, donate: bool = False
    ) -> Program:
        """Preprocess these weights; returns the program with them.

        Args:
            arrays_by_source: arrays that other programs hold, computed from the same weights.
            donate: delete each of JAX's arrays among the originals once no later stage reads it.
        """
        frozen = [_as_array(array, kind) for array, kind in zip((*originals, *self.constants), self.types, strict=True)]
        # A constant is not the same number in every program.
        names: list[Hashable] = [*range(len(originals)), *map(id, self.constants)]
        for number, dtype in self.narrow.items():
            names[number] = names[number], dtype
        narrowed: dict[Hashable, Any] = {}

        def input_array(number: int) -> Any:
            if number not in self.narrow:
                return _shared_array(frozen[number])
            # Weights that are tied stay one array.
            key = id(frozen[number]), self.narrow[number]
            if key not in narrowed:
                narrowed[key] = _cast_array(frozen[number], self.narrow[number])
            return narrowed[key]

        own: dict[Hashable, tuple[Any, ...]] = {}
        preprocessed: dict[int, Any] = {}
        # What XLA has made inside of a module may be wider than the user's setting lets an array be.
        with jax.enable_x64(True):
            for number in self.split.frozen_inputs:
                own[names[number]] = arrays_by_source.get(names[number]) or (input_array(number),)
            unchanged = list(itertools.chain.from_iterable(own.values()))
            for place, (stage, prologue) in enumerate(zip(self.stages, self.prologue_executables, strict=True)):
                key = (prologue.name, *(names[number] for number in stage.parameters))
                # Held arrays are all of one kind, weakly typed or not: the stage compiles once.
                own[key] = arrays_by_source.get(key) or prologue.compile_and_run(
                    [input_array(number) for number in stage.parameters]
                )
                preprocessed.update(zip(stage.results, own[key], strict=True))
                needed = {id(frozen[number]) for later in self.stages[place + 1 :] for number in later.parameters}
                done = [number for number in stage.parameters if id(frozen[number]) not in needed]
                for number in done:
                    narrowed.pop((id(frozen[number]), self.narrow.get(number)), None)
                if donate:
                    jax.block_until_ready(own[key])
                    self._delete(frozen[number] for number in done)
                    # malloc may keep what is deleted in its heap, where the next stage's larger arrays do not fit.
                    return_free_memory()
        if donate:
            self._delete(originals)
        results = (preprocessed[number] for number in range(len(preprocessed)))
        return replace(self, arrays_by_source=own, arrays=(*results, *unchanged))

    def use_large_pages(self) -> None:
        """Move its arrays into large pages, which takes longer than preprocessing them does."""
        numbers = [array for array in self.arrays if not is_key(array.dtype) and array.nbytes]
        jax.block_until_ready(numbers)
        move_to_large_pages({(array.unsafe_buffer_pointer(), bytes_of(array)) for array in numbers})

    def _delete(self, arrays: Iterable[Any]) -> None:
        """Delete JAX's arrays, whoever else refers to them; memory that a held array shares lives on with that."""
        constants = set(map(id, self.constants))
        for array in arrays:
            if isinstance(array, jax.Array) and id(array) not in constants and not array.is_deleted():
                array.delete()

    @property
    def bytes_by_address(self) -> dict[Hashable, int]:
        """Size of each buffer that is held, by its address."""
        return {_address(array): bytes_of(array) for array in self.arrays}

    @cached_property
    def report(self) -> ProgramReport:
        """The program's part of the report: preprocessed values, frozen inputs, weights that are not narrowed."""
        prepared = [
            FrozenValue(value.origin, str(value.shape), bytes_of(array), value.is_prepacked)
            for value, array in zip(self.split.preprocessed, self.arrays, strict=False)
        ]
        kept = [
            FrozenValue(self.names[number].lstrip(), jax.typeof(array).str_short(short_dtypes=True), bytes_of(array))
            for number, array in zip(self.split.frozen_inputs, self.arrays[len(prepared) :], strict=True)
        ]
        wide = {self.names[number].lstrip(): why for number, why in self.not_narrowed.items()}
        return ProgramReport(self.signature, tuple(prepared), tuple(kept), self.split.report, self.smaller, wide)


def _prologue_executable(stage: PrologueStage, split: Split) -> PlaceholderExecutable:
    shapes = [split.preprocessed[number].shape for number in stage.results]
    results = [ShapedArray(shape.dimensions, dtype_of(shape)) for shape in shapes]
    return PlaceholderExecutable(stage.module, results, jax.tree.structure(tuple(results)), MEMORY_OPTIMIZED)


def _abstract(shape: Sequence[int], dtype: Any, device: Any) -> Any:
    """Abstract value of an array on this device; None: on any."""
    if device is None:
        return ShapedArray(tuple(shape), dtype)
    return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=jax.sharding.SingleDeviceSharding(device))


def _is_enabled_type(dtype: Any) -> bool:
    """Whether JAX's setting lets an array be of that type."""
    return is_key(dtype) or jax.dtypes.canonicalize_dtype(dtype) == dtype


def _address(array: Any) -> Hashable:
    # Arrays of jax.random keys have no address.
    return id(array) if is_key(array.dtype) or not array.nbytes else array.unsafe_buffer_pointer()


def _as_array(array: Any, kind: Any) -> Any:
    """A NumPy array with the program's element type, whatever jax_enable_x64 is now."""
    return array if isinstance(array, jax.Array) else numpy.asarray(array, kind)


def _shared_array(array: Any) -> Any:
    """An array that outlives the caller's deletion, donation or overwriting of the original; shares JAX's memory.

    It is a view of NumPy's: XLA copies a donated buffer while such a view exists.
    """
    if not isinstance(array, jax.Array):
        # JAX may still be reading from the user's when this returns.
        return jax.device_put(numpy.array(array), may_alias=True)
    if is_key(array.dtype):
        return jax.random.clone(array)
    return jax.device_put(numpy.asarray(array), _device(array), may_alias=True)


def _cast_array(array: Any, dtype: Any) -> Any:
    """A copy of an array with elements rounded to another type."""
    return jax.device_put(numpy.asarray(array).astype(dtype), _device(array), may_alias=True)


def _device(array: Any) -> Any:
    return next(iter(array.devices())) if isinstance(array, jax.Array) and array.committed else None
