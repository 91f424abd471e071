"""Buffer coalescing: packs the small preprocessed values that only call groups read into one array.

Each argument of a call costs time, in JAX, in XLA and in the call group, and a network has a hundred small vectors. The
call group knows the offset of each value in the array (its attribute `held`). Large values keep their own arrays:
their copies would be in memory together with the originals for a moment.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field, replace

from hlo_dispatch.ir.entry_parameters import renumber_parameters
from hlo_dispatch.ir.literals import literal_of
from hlo_dispatch.ir.module import Module, copy_of, new_instruction, new_tuple
from hlo_dispatch.ir.schema import InstructionProto, LiteralProto
from hlo_dispatch.ir.shape import Shape, row_major, shape_of
from hlo_dispatch.ir.split_module import PreprocessedValue, Split
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.backend_config import from_text, to_text
from hlo_dispatch.passes.call_groups.buffer_assignment import padded
from hlo_dispatch.passes.edit import replace_computations
from hlo_dispatch.passes.module_rewriter import Edit
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


def coalesce_buffers(split: Split) -> Split:
    """Coalesce the small values that only call groups read; the array becomes the first preprocessed value.

    Raises:
        ModuleError: the verifier rejects a half; a bug of ours.
    """
    if split.prologue is None:
        return split
    program = Module.from_bytes(split.program)
    count = len(split.preprocessed)
    most_bytes = sum(value.shape.bytes for value in split.preprocessed) // COALESCED_SHARE
    values = _smallest(_coalescible(program, count + len(split.frozen_inputs)), most_bytes)
    if len(values) < _MIN_VALUES:
        return split
    size = 0
    for value in values:
        value.offset = size
        size += padded(value.shape.bytes)
    coalesced = {value.number for value in values}
    is_prepacked = any(split.preprocessed[number].is_prepacked for number in coalesced if number < count)
    array = PreprocessedValue(row_major("u8", (size,)), f"{len(values)} small values", is_prepacked)
    # Coalesced frozen inputs become further inputs of the prologue.
    moved = [split.frozen_inputs[value.number - count] for value in values if value.number >= count]
    return replace(
        split,
        program=_steady_state_program(program, values, size),
        prologue=_extended_prologue(Module.from_bytes(split.prologue), values, size, count),
        prologue_inputs=(*split.prologue_inputs, *moved),
        preprocessed=(array, *(value for number, value in enumerate(split.preprocessed) if number not in coalesced)),
        frozen_inputs=[number for number in split.frozen_inputs if number not in moved],
    )


def _coalescible(program: Module, static_count: int) -> list[_SmallValue]:
    """The static parameters whose only users, through bitcasts, are call groups."""
    group_kernels = {kernel.grouped_by for kernel in registry.kernels().values() if kernel.grouped_by}
    targets = {registry.kernels()[name].target for name in group_kernels}
    users: defaultdict[int, list[InstructionProto]] = defaultdict(list)
    waited_for: set[int] = {program.entry.root_id}
    for instruction in program.entry.instructions:
        waited_for.update(instruction.control_predecessor_ids[:])
        for operand in instruction.operand_ids[:]:
            users[operand].append(instruction)
    found: list[_SmallValue] = []
    for parameter in program.entry.instructions:
        number, shape = parameter.parameter_number, shape_of(parameter.shape)
        if parameter.opcode != "parameter" or number >= static_count or not shape.bytes:
            continue
        names, readers = {parameter.id}, list(users[parameter.id])
        while readers and (readers[-1].opcode == "bitcast" or readers[-1].custom_call_target in targets):
            reader = readers.pop()
            if reader.opcode == "bitcast":
                names.add(reader.id)
                readers += users[reader.id]
        if not readers and not names & waited_for:
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


def _steady_state_program(module: Module, values: list[_SmallValue], size: int) -> bytes:
    entry = module.entry
    offsets = {name: value.offset for value in values for name in value.names}
    count = len(entry.program_shape.parameters)
    coalesced = {value.number for value in values}
    fresh = max(instruction.id for instruction in entry.instructions) + 1
    array = new_instruction(module, "parameter", fresh, row_major("u8", (size,)), stem="small_values")
    array.parameter_number = count
    instructions = [array]
    for instruction in entry.instructions:
        if instruction.id in offsets:
            continue
        if any(operand in offsets for operand in instruction.operand_ids[:]):
            instruction = _with_coalesced_operands(instruction, offsets, array.id, size)
        instructions.append(instruction)
    replace_computations(module, {entry.id: Edit(instructions, entry.root_id)})
    renumber_parameters(module, [count, *(number for number in range(count) if number not in coalesced)])
    verify(module)
    return module.to_bytes()


def _with_coalesced_operands(
    call: InstructionProto, offsets: dict[int, int], array: int, size: int
) -> InstructionProto:
    """The call group with one array operand in place of its coalesced operands, which are its first values."""
    attributes = from_text(call.backend_config.decode())
    operands = call.operand_ids[:]
    order = sorted(range(len(operands)), key=lambda number: operands[number] not in offsets)
    numbers = {old: new for new, old in enumerate(order)}
    coalesced = [offsets[operand] for operand in operands if operand in offsets]
    # Equal values are one operand; each operand has its own offset.
    changed_attributes = {"held": coalesced, "held_bytes": size}
    for name, value in attributes.items():
        if name.startswith("member_"):
            value["inputs"] = [numbers.get(number, number) for number in value["inputs"]]
        changed_attributes[name] = value
    changed = copy_of(call)
    changed.backend_config = to_text(changed_attributes).encode()
    del changed.operand_ids[:]
    changed.operand_ids.extend([array, *(operand for operand in operands if operand not in offsets)])
    return changed


def _extended_prologue(module: Module, values: list[_SmallValue], size: int, count: int) -> bytes:
    """The prologue of `count` results, with the coalesced ones concatenated into its first result."""
    entry = module.entry
    instructions = {instruction.id: instruction for instruction in entry.instructions}
    root = instructions[entry.root_id]
    results, shapes = ([root.id], [root.shape]) if count == 1 else (root.operand_ids[:], root.shape.tuple_shapes[:])
    fresh = itertools.count(max(instructions) + 1)
    added: list[InstructionProto] = []
    operands: list[int] = []
    parameters = itertools.count(len(entry.program_shape.parameters))

    def add(opcode: str, stem: str, shape: Shape, *operands: int) -> InstructionProto:
        added.append(new_instruction(module, opcode, next(fresh), shape, *operands, stem=stem))
        return added[-1]

    for value in values:
        if value.number < count:
            source = results[value.number]
        else:
            moved = add("parameter", "frozen_input", value.shape)
            moved.parameter_number = next(parameters)
            source = moved.id
        operands.append(add("bitcast", "small_value", row_major("u8", (value.shape.bytes,)), source).id)
        gap = padded(value.shape.bytes) - value.shape.bytes
        if gap:
            filler = add("constant", "gap", row_major("u8", (gap,)))
            filler.literal.CopyFrom(_zeros(gap))
            operands.append(filler.id)
    array = add("concatenate", "small_values", row_major("u8", (size,)), *operands)
    array.dimensions.append(0)
    numbers = {value.number for value in values}
    rest = [number for number in range(count) if number not in numbers]
    root_id = array.id
    if rest:
        root_id = next(fresh)
        results, shapes = (
            [array.id, *(results[number] for number in rest)],
            [array.shape, *(shapes[number] for number in rest)],
        )
        added.append(new_tuple(module, root_id, results, shapes, "preprocessed_values"))
    kept = [instruction for instruction in entry.instructions if count == 1 or instruction.id != root.id]
    replace_computations(module, {entry.id: Edit([*kept, *added], root_id)})
    renumber_parameters(module, range(next(parameters)))
    verify(module)
    return module.to_bytes()


def _zeros(size: int) -> LiteralProto:
    literal = literal_of(row_major("u8", (size,)), bytes(size))
    assert literal is not None
    return literal
