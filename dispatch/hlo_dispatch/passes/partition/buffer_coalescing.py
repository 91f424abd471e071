"""Small values that were prepared for sequences become one array: a call takes time for each argument that it has.

A network has a hundred small vectors, and JAX, XLA and the sequence handle each of them in every call. So what only
sequences read lies in one array, and the sequence knows where (`held` among its attributes). What is large stays an
array of its own: for a moment both would be in memory.
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
from hlo_dispatch.ir.split_module import Prepared, Split
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.backend_config import from_text, to_text
from hlo_dispatch.passes.call_groups.buffer_assignment import padded
from hlo_dispatch.passes.edit import put_back
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.vendor import registry

SMALL_PART = 16
"""All that is put together is at most one part in so many of what is prepared."""
_FEWEST = 2


@dataclass
class _Value:
    """A value that is known early, and that only sequences read."""

    number: int
    """Of its parameter: first what is prepared, then what is frozen and kept as it is."""
    shape: Shape
    names: set[int] = field(default_factory=set[int])
    """Ids of its parameter and of bitcasts of that."""
    offset: int = 0


def held_together(halves: Split) -> Split:
    """The same halves, with the small values that only sequences read in one array, which comes first.

    Raises:
        ModuleError: a half is not sound then; a bug of ours.
    """
    if halves.preparation is None:
        return halves
    program = Module.from_bytes(halves.program)
    count = len(halves.prepared)
    largest = sum(value.shape.bytes for value in halves.prepared) // SMALL_PART
    values = _chosen(_readable(program, count + len(halves.kept)), largest)
    if len(values) < _FEWEST:
        return halves
    size = 0
    for value in values:
        value.offset = size
        size += padded(value.shape.bytes)
    held = {value.number for value in values}
    is_packed = any(halves.prepared[number].is_packed for number in held if number < count)
    together = Prepared(row_major("u8", (size,)), f"{len(values)} small values", is_packed)
    # What was kept as it is the preparation takes now, behind what it took.
    taken = [halves.kept[value.number - count] for value in values if value.number >= count]
    return replace(
        halves,
        program=_program(program, values, size),
        preparation=_preparation(Module.from_bytes(halves.preparation), values, size, count),
        read=(*halves.read, *taken),
        prepared=(together, *(value for number, value in enumerate(halves.prepared) if number not in held)),
        kept=[number for number in halves.kept if number not in taken],
    )


def _readable(program: Module, early: int) -> list[_Value]:
    """Those of the first parameters that only sequences read, and that nothing else needs under their names."""
    sequence = {kernel.joined_by for kernel in registry.kernels().values() if kernel.joined_by}
    targets = {registry.kernels()[name].target for name in sequence}
    users: defaultdict[int, list[InstructionProto]] = defaultdict(list)
    waited_for: set[int] = {program.entry.root_id}
    for instruction in program.entry.instructions:
        waited_for.update(instruction.control_predecessor_ids[:])
        for operand in instruction.operand_ids[:]:
            users[operand].append(instruction)
    found: list[_Value] = []
    for parameter in program.entry.instructions:
        number, shape = parameter.parameter_number, shape_of(parameter.shape)
        if parameter.opcode != "parameter" or number >= early or not shape.bytes:
            continue
        names, readers = {parameter.id}, list(users[parameter.id])
        while readers and (readers[-1].opcode == "bitcast" or readers[-1].custom_call_target in targets):
            reader = readers.pop()
            if reader.opcode == "bitcast":
                names.add(reader.id)
                readers += users[reader.id]
        if not readers and not names & waited_for:
            found.append(_Value(number, shape, names))
    return found


def _chosen(values: list[_Value], left: int) -> list[_Value]:
    """The smallest ones, of at most so many bytes together, in their order."""
    chosen: list[_Value] = []
    for value in sorted(values, key=lambda value: value.shape.bytes):
        left -= padded(value.shape.bytes)
        if left < 0:
            break
        chosen.append(value)
    return sorted(chosen, key=lambda value: value.number)


def _program(module: Module, values: list[_Value], size: int) -> bytes:
    entry = module.entry
    offsets = {name: value.offset for value in values for name in value.names}
    count = len(entry.program_shape.parameters)
    gone = {value.number for value in values}
    fresh = max(instruction.id for instruction in entry.instructions) + 1
    array = new_instruction(module, "parameter", fresh, row_major("u8", (size,)), stem="small_values")
    array.parameter_number = count
    instructions = [array]
    for instruction in entry.instructions:
        if instruction.id in offsets:
            continue
        if any(operand in offsets for operand in instruction.operand_ids[:]):
            instruction = _sequence(instruction, offsets, array.id, size)
        instructions.append(instruction)
    put_back(module, {entry.id: Edit(instructions, entry.root_id)})
    renumber_parameters(module, [count, *(number for number in range(count) if number not in gone)])
    verify(module)
    return module.to_bytes()


def _sequence(call: InstructionProto, offsets: dict[int, int], array: int, size: int) -> InstructionProto:
    """The call with its held operands first among the values, and one argument in their stead."""
    said = from_text(call.backend_config.decode())
    operands = call.operand_ids[:]
    order = sorted(range(len(operands)), key=lambda number: operands[number] not in offsets)
    numbers = {old: new for new, old in enumerate(order)}
    held = [offsets[operand] for operand in operands if operand in offsets]
    # Equal values that were prepared once are one operand; each operand has its own place in the list.
    made = {"held": held, "held_bytes": size}
    for name, value in said.items():
        if name.startswith("member_"):
            value["inputs"] = [numbers.get(number, number) for number in value["inputs"]]
        made[name] = value
    changed = copy_of(call)
    changed.backend_config = to_text(made).encode()
    del changed.operand_ids[:]
    changed.operand_ids.extend([array, *(operand for operand in operands if operand not in offsets)])
    return changed


def _preparation(module: Module, values: list[_Value], size: int, count: int) -> bytes:
    """The early half, which gives so many values, with those that are held in one array, which comes first."""
    entry = module.entry
    instructions = {instruction.id: instruction for instruction in entry.instructions}
    root = instructions[entry.root_id]
    given, shapes = ([root.id], [root.shape]) if count == 1 else (root.operand_ids[:], root.shape.tuple_shapes[:])
    fresh = itertools.count(max(instructions) + 1)
    added: list[InstructionProto] = []
    pieces: list[int] = []
    parameters = itertools.count(len(entry.program_shape.parameters))

    def add(opcode: str, stem: str, shape: Shape, *operands: int) -> InstructionProto:
        added.append(new_instruction(module, opcode, next(fresh), shape, *operands, stem=stem))
        return added[-1]

    for value in values:
        if value.number < count:
            source = given[value.number]
        else:
            taken = add("parameter", "kept", value.shape)
            taken.parameter_number = next(parameters)
            source = taken.id
        pieces.append(add("bitcast", "small_value", row_major("u8", (value.shape.bytes,)), source).id)
        gap = padded(value.shape.bytes) - value.shape.bytes
        if gap:
            filler = add("constant", "gap", row_major("u8", (gap,)))
            filler.literal.CopyFrom(_zeros(gap))
            pieces.append(filler.id)
    array = add("concatenate", "small_values", row_major("u8", (size,)), *pieces)
    array.dimensions.append(0)
    numbers = {value.number for value in values}
    rest = [number for number in range(count) if number not in numbers]
    root_id = array.id
    if rest:
        root_id = next(fresh)
        given, shapes = (
            [array.id, *(given[number] for number in rest)],
            [array.shape, *(shapes[number] for number in rest)],
        )
        added.append(new_tuple(module, root_id, given, shapes, "everything_prepared"))
    kept = [instruction for instruction in entry.instructions if count == 1 or instruction.id != root.id]
    put_back(module, {entry.id: Edit([*kept, *added], root_id)})
    renumber_parameters(module, range(next(parameters)))
    verify(module)
    return module.to_bytes()


def _zeros(size: int) -> LiteralProto:
    literal = literal_of(row_major("u8", (size,)), bytes(size))
    assert literal is not None
    return literal
