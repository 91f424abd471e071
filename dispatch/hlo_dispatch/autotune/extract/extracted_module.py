"""Extracted module: a region as a module of its own, with its inputs, results and context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hlo_dispatch.autotune.extract.digest import LARGEST_CONSTANT
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.ir.shape import Shape, shape_of

TRIP_CLASSES = (8, 64, 512, 4096)
"""Upper bounds of trip-count classes: a region has one measurement for all loops of a class."""
FROZEN = "frozen_input"
"""Name prefix of frozen parameters."""


@dataclass(frozen=True)
class LoopContext:
    """The loop around a region, as far as the region's time depends on it."""

    most_trips: int
    """Upper bound of its trip-count class."""
    carried: tuple[tuple[int, int], ...] = ()
    """Loop-carried values: (input, result) that share a buffer."""

    @classmethod
    def of(cls, executions: float, carried: tuple[tuple[int, int], ...] = ()) -> LoopContext:
        """The context of a region with this many executions; the last class has no upper bound."""
        return cls(next((bound for bound in TRIP_CLASSES if executions <= bound), TRIP_CLASSES[-1]), carried)


@dataclass(frozen=True)
class ExtractedModule:
    """A region as a module; its entry computation takes and returns row-major arrays."""

    module: Module
    """Several results are a tuple."""
    anchor: str
    """Name of the match's anchor op (a pattern's result) in the original module."""
    inputs: tuple[Shape, ...]
    results: tuple[Shape, ...]
    produced: tuple[bool, ...]
    """For each input, whether another instruction computes it; otherwise it is an input of the program."""
    consumed: tuple[bool, ...]
    """For each result, whether another instruction reads it; otherwise it is only a result of the program."""
    routine: str = ""
    """The library call's name in the table (`eigh`), where the region is one; its results follow."""
    logical: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    """For a library call, each result's name in the table and its (size, stride) dimensions over its buffer."""
    loop: LoopContext | None = None
    """Where the program runs the region in a loop."""

    @cached_property
    def frozen(self) -> frozenset[int]:
        """Numbers of the frozen inputs."""
        return frozenset(
            i.parameter_number
            for i in self.module.entry.instructions
            if i.opcode == "parameter" and i.name.startswith(FROZEN)
        )

    @property
    def bytes(self) -> int:
        """Bytes of all inputs and results."""
        return sum(shape.bytes for shape in (*self.inputs, *self.results))


def is_small_constant(instruction: InstructionProto) -> bool:
    """Whether the instruction is part of every region that reads it."""
    return instruction.opcode == "constant" and shape_of(instruction.shape).bytes <= LARGEST_CONSTANT


def set_signature(entry: ComputationProto, inputs: Sequence[Shape], result: ShapeProto) -> None:
    """Set the computation's program shape."""
    entry.ClearField("program_shape")
    entry.program_shape.parameters.extend(shape.to_proto() for shape in inputs)
    entry.program_shape.parameter_names.extend(f"region_input.{number}" for number in range(len(inputs)))
    entry.program_shape.result.CopyFrom(result)


def called_by(module: Module, instructions: Iterable[InstructionProto]) -> list[ComputationProto]:
    """Transitive callees of the instructions, in the module's order: callees first."""
    found: set[int] = set()
    pending = [called for instruction in instructions for called in instruction.called_computation_ids]
    while pending:
        identifier = pending.pop()
        if identifier not in found:
            found.add(identifier)
            for instruction in module.computations[identifier].instructions:
                pending += instruction.called_computation_ids
    return [computation for computation in module.proto.computations if computation.id in found]
