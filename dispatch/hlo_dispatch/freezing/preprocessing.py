"""Weight preprocessing: runs the prologue stages of a frozen function's programs, and holds each array once.

An array is known by its key: of a frozen array that programs read as it is, what identifies that; of a preprocessed
value, the digest of what computes it from which frozen arrays. Programs with equal keys share the array.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.core import ShapedArray

from hlo_dispatch.autotune.run.inputs import dtype_of
from hlo_dispatch.freezing.array_memory import (
    abstract_array,
    cast_array,
    committed_device,
    forget_mapped_pages,
    held_array,
    passed_array,
)
from hlo_dispatch.freezing.placeholder_executable import PlaceholderExecutable
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.passes.partition.prologue_stages import PrologueGraph, PrologueStage
from hlo_dispatch.process.retained_memory import return_free_memory

MEMORY_OPTIMIZED = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""XLA's default scheduler favours parallelism, and holds all intermediate values of weight preprocessing at once."""
_RETURNED_BYTES = 64 << 20
"""malloc may keep so much of what stages free in its heap, where larger arrays do not fit."""


@dataclass(frozen=True)
class FrozenInputs:
    """Frozen arrays of one program: those that were given, then those that its function closes over."""

    constants: Sequence[Any]
    """Arrays that the function closes over."""
    names: Sequence[str]
    types: Sequence[Any]
    """Of their elements, as they are given."""
    narrow: Mapping[int, Any]
    """Those that the module has in another element type: number → type."""

    def arrays(self, originals: Sequence[Any]) -> tuple[Any, ...]:
        """All of them, with the given ones."""
        return (*originals, *self.constants)

    def dtype(self, number: int) -> Any:
        """Element type in the module."""
        return self.narrow.get(number, self.types[number])

    def key(self, number: int) -> Hashable:
        """What identifies the array in the program's type; a constant has no number that other programs know."""
        given = len(self.names) - len(self.constants)
        name = number if number < given else ("closed over", id(self.constants[number - given]))
        return (name, str(self.narrow[number])) if number in self.narrow else name

    def abstract(self, arrays: Sequence[Any], number: int) -> Any:
        """Abstract value of an array, as the program or the prologue takes it."""
        return abstract_array(arrays[number].shape, self.dtype(number), committed_device(arrays[number]))


@dataclass(frozen=True)
class PreprocessingStep:
    """One stage of a program's prologue, with its executable."""

    stage: PrologueStage
    executable: PlaceholderExecutable
    keys: Sequence[Hashable]
    """Of its results."""
    results: Sequence[ShapedArray]


@dataclass(frozen=True)
class Preprocessing:
    """What one program needs of weight preprocessing."""

    inputs: FrozenInputs
    kept: Mapping[Hashable, int]
    """Key → number of each frozen array that the steady-state program reads as it is, in its order."""
    preprocessed: Sequence[Hashable]
    """Keys of the preprocessed values, in the program's order."""
    steps: Sequence[PreprocessingStep]
    """Compute those values that no earlier program of the function has."""

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """Of the steady-state program's leading arguments."""
        return (*self.preprocessed, *self.kept)

    def compile(self, originals: Sequence[Any]) -> dict[Hashable, Any]:
        """Compile its steps for arrays like these; returns the abstract value of each of their results, by key."""
        arrays = self.inputs.arrays(originals)
        devices = list(map(committed_device, arrays))
        compiled: set[Hashable] = set()
        made: dict[Hashable, Any] = {}
        for step in self.steps:
            numbers = step.stage.parameters
            kind = (step.stage.digest, *(devices[number] for number in numbers))
            if kind not in compiled:
                compiled.add(kind)
                # What XLA has made inside of a module may be wider than the user's setting lets an array be.
                with jax.enable_x64(True):
                    step.executable.compile([self.inputs.abstract(arrays, number) for number in numbers])
            device = next(filter(None, (devices[number] for number in numbers)), None)
            for key, result in zip(step.keys, step.results, strict=True):
                made[key] = abstract_array(result.shape, result.dtype, device)
        return made


@dataclass
class StageExecutables:
    """Executables of the stages of one frozen function, each structure compiled once; thread-safe under its lock."""

    _by_digest: dict[bytes, PlaceholderExecutable] = field(default_factory=dict[bytes, PlaceholderExecutable])

    def of(self, stage: PrologueStage, results: Sequence[ShapedArray]) -> PlaceholderExecutable:
        """The executable of a stage with these results."""
        if stage.digest not in self._by_digest:
            structure = jax.tree.structure(tuple(results))
            self._by_digest[stage.digest] = PlaceholderExecutable(stage.module, results, structure, MEMORY_OPTIMIZED)
        return self._by_digest[stage.digest]


def preprocessing_of(
    split: Split, inputs: FrozenInputs, known: Mapping[Hashable, Any], executables: StageExecutables
) -> Preprocessing:
    """The preprocessing of one program.

    Args:
        known: keys of the values that other programs of the function have.
    """
    kept = {inputs.key(number): number for number in split.frozen_inputs}
    if split.prologue is None:
        return Preprocessing(inputs, kept, (), ())
    graph = PrologueGraph(split)
    keys = graph.value_digests(lambda number: repr(inputs.key(number)))
    # Two values of one program may be equal: one of them is computed.
    needed = {key: number for number, key in reversed(list(enumerate(keys))) if key not in known}
    steps: list[PreprocessingStep] = []
    for stage in graph.stages(needed.values()):
        shapes = [split.preprocessed[number].shape for number in stage.results]
        results = [ShapedArray(shape.dimensions, dtype_of(shape)) for shape in shapes]
        stage_keys = [keys[number] for number in stage.results]
        steps.append(PreprocessingStep(stage, executables.of(stage, results), stage_keys, results))
    return Preprocessing(inputs, kept, keys, steps)


def preprocessed(
    programs: Iterable[Preprocessing], originals: Sequence[Any], held: Mapping[Hashable, Any], *, donate: bool = False
) -> dict[Hashable, Any]:
    """Preprocess weights for programs, in the order in which they were built; returns all arrays by their keys.

    The largest come first, while there is most room.

    Args:
        held: arrays that other programs hold, computed from the same weights.
        donate: delete each of JAX's arrays among the originals once no later stage reads it.
    """
    programs = list(programs)
    constants = {id(constant) for program in programs for constant in program.inputs.constants}
    run = _PreprocessingRun(originals, dict(held), constants if donate else None)
    with jax.enable_x64(True):
        for program in programs:
            for key, number in program.kept.items():
                run.hold(program.inputs, key, number)
        steps = [(program.inputs, step) for program in programs for step in program.steps]
        run.run(sorted(steps, key=lambda pair: -pair[1].stage.bytes))
    run.delete(originals)
    return run.held


class _PreprocessingRun:
    """One run of weight preprocessing."""

    def __init__(self, originals: Sequence[Any], held: dict[Hashable, Any], constants: AbstractSet[int] | None) -> None:
        """
        Args:
            constants: ids of the arrays that are never deleted; None: none is.
        """
        self.held = held
        self._originals, self._constants = originals, constants
        self._narrowed: dict[tuple[int, str], Any] = {}
        """Arrays in narrower types: weights that are tied stay one array."""
        self._freed = 0
        """Bytes that were freed since memory was last returned."""

    def hold(self, inputs: FrozenInputs, key: Hashable, number: int) -> None:
        """Hold a frozen array that a program reads as it is."""
        if key in self.held:
            return
        array = inputs.arrays(self._originals)[number]
        if number in inputs.narrow:
            self.held[key] = self._narrowed_array(inputs, number)
        else:
            self.held[key] = held_array(array, inputs.types[number])
        forget_mapped_pages(array)

    def run(self, steps: Sequence[tuple[FrozenInputs, PreprocessingStep]]) -> None:
        """Run steps, and free what no later one needs."""
        needed = Counter(id(array) for inputs, step in steps for array in self._arrays(inputs, step))
        for inputs, step in steps:
            parameters = [self._parameter(inputs, number) for number in step.stage.parameters]
            results = jax.block_until_ready(step.executable.compile_and_run(parameters))
            self.held.update(zip(step.keys, results, strict=True))
            del parameters
            arrays = self._arrays(inputs, step)
            needed.subtract(map(id, arrays))
            self._free([array for array in arrays if not needed[id(array)]], step.stage.bytes)

    def delete(self, arrays: Iterable[Any]) -> None:
        """Delete JAX's arrays, whoever else refers to them; memory that another array shares lives on with that one."""
        for array in arrays:
            is_given = self._constants is not None and id(array) not in self._constants
            if is_given and isinstance(array, jax.Array) and not array.is_deleted():
                array.delete()

    def _arrays(self, inputs: FrozenInputs, step: PreprocessingStep) -> list[Any]:
        arrays = inputs.arrays(self._originals)
        return [arrays[number] for number in step.stage.parameters]

    def _parameter(self, inputs: FrozenInputs, number: int) -> Any:
        if number in inputs.narrow:
            return self._narrowed_array(inputs, number)
        # Held arrays are all of one kind, weakly typed or not: a stage compiles once.
        return passed_array(inputs.arrays(self._originals)[number], inputs.types[number])

    def _narrowed_array(self, inputs: FrozenInputs, number: int) -> Any:
        array = inputs.arrays(self._originals)[number]
        key = id(array), str(inputs.narrow[number])
        if key not in self._narrowed:
            self._narrowed[key] = cast_array(array, inputs.narrow[number])
        return self._narrowed[key]

    def _free(self, arrays: Sequence[Any], size: int) -> None:
        """Free what a step was the last one to read."""
        for array in arrays:
            forget_mapped_pages(array)
        freed = set(map(id, arrays))
        self._narrowed = {key: array for key, array in self._narrowed.items() if key[0] not in freed}
        self.delete(arrays)
        self._freed += size
        if self._freed >= _RETURNED_BYTES:
            return_free_memory()
            self._freed = 0
