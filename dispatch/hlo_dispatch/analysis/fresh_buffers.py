"""Live-range analysis: an estimate of the large buffers that XLA's buffer assignment allocates anew for each run.

XLA schedules the module after the pipeline has run, so the analysis takes live ranges in the order of the
instructions, except that an instruction with a result tuple as its only user runs as early as possible. Parameters,
constants and each result of the program have their own buffers; before a result is written, its buffer holds the
largest of the other values that fit. The remaining values are in one temporary buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_dispatch.analysis.in_place_updates import writes_in_place
from hlo_dispatch.analysis.live_range import LiveRange
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ELEMENTWISE, FORWARDS
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.ir.shape import shape_of

MIN_SHARED_BYTES = 1 << 18
"""Bytes of the smallest value that may share a result's buffer."""
_OWN_BUFFERS = frozenset(("constant", "parameter"))
_RENAMES = FORWARDS | {"get-tuple-element"}
_NO_WORK = _OWN_BUFFERS | _RENAMES
_CALLS = frozenset(("call", "conditional", "while"))
_ELEMENTWISE = ELEMENTWISE | {"bitcast-convert", "copy", "tuple"}
"""Opcodes that read an operand's element where they write the result's, and what gathers such results."""
_FRESH = frozenset(("call", "conditional"))
"""Opcodes that may update in place, but whose results have their own buffers."""


_Elements = list[list[LiveRange]]
"""The values of each element of a result; an array has one element."""


def fresh_buffers(module: Module) -> list[int]:
    """Bytes of the temporary buffer, those of loops and branches included, then of each result's that takes values."""
    most: dict[int, int] = {}
    reached = {computation.id for computation, _ in module.control_flow_computations()}
    # Callees precede callers.
    for computation in module.proto.computations[:]:
        if computation.id in reached and computation.id != module.entry.id:
            ranges = _LiveRanges(module, computation, most)
            most[computation.id] = ranges.most_live(ranges.others())
    ranges = _LiveRanges(module, module.entry, most)
    donated = {entry.output_shape_index[0] if entry.output_shape_index else 0
               for entry in module.proto.input_output_alias.entries}  # fmt: skip
    results = [value for index, element in enumerate(ranges.results) if index not in donated for value in element]
    return [ranges.most_live(_temporaries(ranges.others(), results)), *(value.bytes for value in results)]


def _temporaries(values: list[LiveRange], results: list[LiveRange]) -> list[LiveRange]:
    """Values that fit into no result's buffer; the others are placed largest first, into the smallest free buffer."""
    buffers = sorted(((result.bytes, [result]) for result in results if result.bytes >= MIN_SHARED_BYTES), key=_size)
    temporary = [value for value in values if value.bytes < MIN_SHARED_BYTES]
    for value in sorted((value for value in values if value.bytes >= MIN_SHARED_BYTES), key=lambda value: -value.bytes):
        fitting = (occupants for size, occupants in buffers if value.bytes <= size)
        place = next((occupants for occupants in fitting if not any(map(value.overlaps, occupants))), temporary)
        place.append(value)
    return temporary


def _leaves(instructions: Sequence[InstructionProto], root: int) -> set[int]:
    """Ids of instructions whose only user is a result tuple: XLA schedules them as soon as their operands exist."""
    leaves, read = {root}, set[int]()
    for instruction in reversed(instructions):
        passes_on = instruction.opcode in _RENAMES and instruction.id in leaves and instruction.id not in read
        (leaves if passes_on else read).update(instruction.operand_ids[:])
    return leaves - read - {root}


def result_shapes(instruction: InstructionProto) -> list[ShapeProto]:
    """Shapes of the elements of an instruction's result; an array is one."""
    return instruction.shape.tuple_shapes[:] or [instruction.shape]


def _size(buffer: tuple[int, list[LiveRange]]) -> int:
    return buffer[0]


class _LiveRanges:
    """Live ranges of one computation's values; position 2n is instruction n, 2n + 1 what runs just behind it."""

    def __init__(self, module: Module, computation: ComputationProto, most: dict[int, int]) -> None:
        """
        Args:
            most: id of a computation that this one calls → the most bytes that are live in it.
        """
        self._module, self._most = module, most
        self._instructions = computation.instructions[:]
        self._protos = {instruction.id: instruction for instruction in self._instructions}
        self._elements: dict[int, _Elements] = {}
        self._values: list[LiveRange] = []
        places: dict[int, int] = {}
        leaves = _leaves(self._instructions, computation.root_id)
        for index, instruction in enumerate(self._instructions):
            operands = instruction.operand_ids[:]
            place = 2 * index
            if instruction.opcode in _NO_WORK or instruction.id in leaves:
                place = max((places[operand] for operand in operands), default=0)
                place += instruction.opcode not in _NO_WORK
            places[instruction.id] = place
            self._define(place, instruction)
            if instruction.opcode not in _RENAMES:
                for value in self._values_of(operands):
                    value.last = max(value.last, place)
        self.results = self._elements[computation.root_id]
        """The computation's results, in buffers of the caller or the program."""
        for value in self._values_of([computation.root_id]):
            value.last = 2 * len(self._instructions) - 1

    def others(self) -> list[LiveRange]:
        """Values that are not results."""
        results = {id(value) for element in self.results for value in element}
        return [value for value in self._values if id(value) not in results]

    def most_live(self, values: list[LiveRange]) -> int:
        """Peak of the live bytes of these values, including the peaks of called loops and computations."""
        count = 2 * len(self._instructions)
        begin, end = [0] * count, [0] * count
        overwriting = {value.first for value in values if value.may_overwrite}
        for value in values:
            begin[value.first] += value.bytes
            end[value.last] += value.bytes
        live = most = 0
        for place in range(count):
            instruction = self._instructions[place // 2]
            live += begin[place]
            if instruction.opcode in _CALLS and place % 2 == 0:
                most = max(most, live + max(self._most[called] for called in instruction.called_computation_ids[:]))
            if place not in overwriting:
                most = max(most, live)
            live -= end[place]
            most = max(most, live)
        return most

    def _define(self, place: int, instruction: InstructionProto) -> None:
        opcode, operands = instruction.opcode, instruction.operand_ids[:]
        if opcode == "get-tuple-element":
            elements = self._elements[operands[0]][instruction.tuple_index :][:1]
        elif opcode == "bitcast" or opcode == "while":
            elements = self._elements[operands[0]]
        elif opcode == "tuple":
            elements = [self._values_of([operand]) for operand in operands]
        elif opcode in _OWN_BUFFERS:
            elements = [list[LiveRange]() for _ in result_shapes(instruction)]
        else:
            sizes = [shape_of(shape).bytes for shape in result_shapes(instruction)]
            is_large = max(sizes, default=0) >= MIN_SHARED_BYTES
            overwritten = self._written_over(instruction) if is_large else []
            elements = overwritten or self._new_values(place, instruction, sizes, is_large=is_large)
        self._elements[instruction.id] = elements

    def _values_of(self, operands: list[int]) -> list[LiveRange]:
        return [value for operand in operands for element in self._elements[operand] for value in element]

    def _written_over(self, instruction: InstructionProto) -> _Elements:
        """Values whose buffers a large result overwrites; empty where it has its own buffer."""
        operands = instruction.operand_ids[:]
        if instruction.opcode in _FRESH or not writes_in_place(self._module, instruction):
            return []
        if instruction.shape.tuple_shapes[:]:
            return [self._values_of([operand]) for operand in operands]
        same = [operand for operand in operands if self._protos[operand].shape == instruction.shape]
        return [self._values_of(same)] if same else []

    def _new_values(self, place: int, instruction: InstructionProto, sizes: list[int], *, is_large: bool) -> _Elements:
        may_overwrite = is_large and instruction.opcode == "fusion" and self._may_overwrite(instruction)
        values = [LiveRange(size, place, place, may_overwrite) for size in sizes]
        self._values += values
        return [[value] for value in values]

    def _may_overwrite(self, fusion: InstructionProto) -> bool:
        """Whether an operand has the shape of a result and is read by elementwise instructions alone, as XLA's
        dataflow analysis wants it for a shared buffer."""
        shapes = result_shapes(fusion)
        alike = [
            number for number, operand in enumerate(fusion.operand_ids[:]) if self._protos[operand].shape in shapes
        ]
        if not alike:
            return False
        fused = self._module.computations[fusion.called_computation_ids[0]].instructions[:]
        read_otherwise = set[int]()
        for inner in reversed(fused):
            if inner.id in read_otherwise or inner.opcode not in _ELEMENTWISE:
                read_otherwise.update(inner.operand_ids[:])
        return any(
            inner.opcode == "parameter" and inner.parameter_number in alike and inner.id not in read_otherwise
            for inner in fused
        )
