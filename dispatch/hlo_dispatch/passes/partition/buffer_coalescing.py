"""Buffer coalescing: packs the small preprocessed values that only call groups read into one array.

Each argument of a call costs time, in JAX, in XLA and in the call group, and a network has a hundred small vectors. The
call group knows the offset of each value in the array (its attribute `held`). Large values keep their own arrays:
their copies would be in memory together with the originals for a moment.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hlo_dispatch.analysis.buffer_assignment import padded
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.entry_parameters import renumber_parameters
from hlo_dispatch.ir.kernel_call import KernelCall
from hlo_dispatch.ir.literals import zero_bytes
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, row_major, shape_of
from hlo_dispatch.ir.split_module import PreprocessedValue
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.vendor import registry

COALESCED_SHARE = 16
"""The coalesced values have at most 1/16 of the bytes of all preprocessed values."""
_MIN_VALUES = 2


@dataclass
class _SmallValue:
    """A small static value that only call groups read."""

    number: int
    """Its parameter number: preprocessed values come first, then the frozen inputs."""
    shape: Shape
    names: set[int] = field(default_factory=set[int])
    """Ids of its parameter and of the parameter's bitcasts."""
    offset: int = 0


def coalesce_buffers(module: Module, context: PassContext) -> set[int]:
    """Coalesce the small values that only call groups read; the array becomes the first preprocessed value."""
    split = context.split
    if split is None or split.prologue is None:
        return set()
    count = len(split.preprocessed)
    most_bytes = sum(value.shape.bytes for value in split.preprocessed) // COALESCED_SHARE
    editor = Editor(module, module.entry)
    values = _smallest(_coalescible(editor, count + len(split.frozen_inputs)), most_bytes)
    if len(values) < _MIN_VALUES:
        return set()
    size = 0
    for value in values:
        value.offset = size
        size += padded(value.shape.bytes)
    _coalesce_in_program(editor, values, size)
    _coalesce_in_prologue(split.prologue, values, size, count)
    coalesced = {value.number for value in values}
    is_prepacked = any(split.preprocessed[number].is_prepacked for number in coalesced if number < count)
    array = PreprocessedValue(row_major("u8", (size,)), f"{len(values)} small values", is_prepacked)
    split.preprocessed = [array, *(v for number, v in enumerate(split.preprocessed) if number not in coalesced)]
    # Coalesced frozen inputs become further inputs of the prologue.
    moved = [split.frozen_inputs[value.number - count] for value in values if value.number >= count]
    split.prologue_inputs = [*split.prologue_inputs, *moved]
    split.frozen_inputs = [number for number in split.frozen_inputs if number not in moved]
    return {module.entry.id}


def _coalescible(editor: Editor, static_count: int) -> list[_SmallValue]:
    """The static parameters whose only users, through bitcasts, are call groups."""
    group_kernels = {kernel.grouped_by for kernel in registry.kernels().values() if kernel.grouped_by}
    targets = {registry.kernels()[name].target for name in group_kernels}
    instructions = editor.instructions
    waited_for = {i for instruction in instructions.values() for i in instruction.control_predecessor_ids[:]}
    waited_for.add(editor.root_id)
    sliced = set[int]()
    """What call groups read slices of, and the indexes of these."""
    for call in (editor.module.kernel_call(i) for i in instructions.values() if i.custom_call_target in targets):
        sliced.update(*((call.operands[number], of.index) for number, of in call.slices.items()))
    found: list[_SmallValue] = []
    for parameter in editor.parameters():
        number, shape = parameter.parameter_number, shape_of(parameter.shape)
        if number >= static_count or not shape.bytes:
            continue
        names, readers = {parameter.id}, editor.users(parameter.id)
        while readers and (
            instructions[readers[-1]].opcode == "bitcast" or instructions[readers[-1]].custom_call_target in targets
        ):
            reader = readers.pop()
            if instructions[reader].opcode == "bitcast":
                names.add(reader)
                readers += editor.users(reader)
        if not readers and not names & (waited_for | sliced):
            found.append(_SmallValue(number, shape, names))
    return found


def _smallest(values: list[_SmallValue], free_bytes: int) -> list[_SmallValue]:
    """The smallest values that fit into so many bytes, in their order."""
    chosen: list[_SmallValue] = []
    for value in sorted(values, key=lambda value: value.shape.bytes):
        free_bytes -= padded(value.shape.bytes)
        if free_bytes < 0:
            break
        chosen.append(value)
    return sorted(chosen, key=lambda value: value.number)


def _coalesce_in_program(editor: Editor, values: list[_SmallValue], size: int) -> None:
    """Read the values from one array, which is the program's first parameter then."""
    offsets = {name: value.offset for value in values for name in value.names}
    count = len(editor.computation.program_shape.parameters)
    array = editor.first().parameter(count, row_major("u8", (size,)), "small_values")
    for identifier in dict.fromkeys(user for name in offsets for user in editor.users(name)):
        if identifier not in offsets:
            call = editor.module.kernel_call(editor.instructions[identifier])
            editor.write(identifier, _with_coalesced_operands(call, offsets, array.id, size))
    editor.remove_dead_code(offsets)
    commit(editor.module, [editor])
    coalesced = {value.number for value in values}
    renumber_parameters(editor.module, [count, *(number for number in range(count) if number not in coalesced)])


def _with_coalesced_operands(call: KernelCall, offsets: Mapping[int, int], array: int, size: int) -> KernelCall:
    """The call group with one array operand in place of its coalesced operands, which are its first values."""
    order = sorted(range(len(call.operands)), key=lambda number: call.operands[number] not in offsets)
    numbers = {old: new for new, old in enumerate(order)}
    # Equal values are one operand; each operand has its own offset.
    attributes: dict[str, Any] = {"held": [offsets[o] for o in call.operands if o in offsets], "held_bytes": size}
    for name, value in call.attributes.items():
        if name.startswith("member_"):
            value = {**value, "inputs": [numbers.get(number, number) for number in value["inputs"]]}
        attributes[name] = value
    operands = (array, *(operand for operand in call.operands if operand not in offsets))
    before = len(call.operands) - len(operands)
    slices = {numbers[number] - before: of for number, of in call.slices.items()}
    return replace(call, attributes=Attributes(attributes), operands=operands, slices=slices)


def _coalesce_in_prologue(module: Module, values: list[_SmallValue], size: int, count: int) -> None:
    """Concatenate the values of a prologue with `count` results into its first result."""
    editor = Editor(module, module.entry)
    builder, root = editor.last(), editor.root
    results, shapes = ([root.id], [root.shape]) if count == 1 else (root.operand_ids[:], root.shape.tuple_shapes[:])
    parameters = itertools.count(len(module.entry.program_shape.parameters))
    operands: list[int] = []
    for value in values:
        if value.number < count:
            source = results[value.number]
        else:
            source = builder.parameter(next(parameters), value.shape, "frozen_input").id
        flat = row_major("u8", (value.shape.bytes,))
        operands.append(builder.make("bitcast", flat, source, stem="small_value").id)
        if gap := padded(flat.bytes) - flat.bytes:
            operands.append(builder.constant(row_major("u8", (gap,)), zero_bytes(gap), "gap").id)
    array = builder.concatenate(operands, row_major("u8", (size,)), "small_values")
    editor.root_id = array.id
    numbers = {value.number for value in values}
    if rest := [number for number in range(count) if number not in numbers]:
        operands = [array.id, *(results[number] for number in rest)]
        editor.root_id = builder.tuple(
            operands, [array.shape, *(shapes[number] for number in rest)], "preprocessed_values"
        ).id
    editor.remove_dead_code({root.id} if count > 1 else ())
    commit(module, [editor])
    renumber_parameters(module, range(next(parameters)))
