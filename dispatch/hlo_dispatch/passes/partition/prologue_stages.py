"""A preparation in several parts that run one after the other: what only one of them reads can go when it is done.

Between them originals and prepared weights never exist both whole. Values that are made of one large intermediate
value are in one part; small ones (a norm's scale, that goes into weights and bias) are computed in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo_dispatch.ir.entry_parameters import renumber_parameters
from hlo_dispatch.ir.module import Module, new_tuple
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.edit import put_back
from hlo_dispatch.passes.instruction_order import made_of
from hlo_dispatch.passes.module_rewriter import Edit

MOST_PARTS = 8
"""Each is compiled for itself, so more of them take longer; about one part in so many exists twice."""
WORTH_PARTS = 64 << 20
"""Bytes; a preparation of less is one part."""
_SMALL = 1 << 16
"""Bytes of an intermediate value that is rather computed twice."""


@dataclass(frozen=True)
class PreparationPart:
    """One part of the preparation."""

    module: bytes
    """Takes the frozen parameters in `read`, returns the values in `made`, several of them in a tuple."""
    read: Sequence[int]
    """Parameters of the whole module."""
    made: Sequence[int]
    """Numbers among what is prepared."""


def in_parts(halves: Split, *, is_one: bool) -> tuple[PreparationPart, ...]:
    """The preparation, in one part or several; none where nothing is prepared.

    Args:
        is_one: whether it shall be one, however large.

    Raises:
        ModuleError: a part is not sound; a bug of ours.
    """
    if halves.preparation is None:
        return ()
    sizes = [value.shape.bytes for value in halves.prepared]
    groups = [list(range(len(sizes)))]
    if not is_one and len(sizes) > 1 and sum(sizes) >= WORTH_PARTS:
        groups = _together(_connected(Module.from_bytes(halves.preparation)), sizes)
    if len(groups) == 1:
        return (PreparationPart(halves.preparation, halves.read, groups[0]),)
    return tuple(_part(halves, group) for group in groups)


def _connected(module: Module) -> list[list[int]]:
    """Numbers of the results, those together that are made of one large value."""
    import networkx as nx  # a fifth of a second, which only large weights have to pay

    instructions = {instruction.id: instruction for instruction in module.entry.instructions}
    results = instructions[module.entry.root_id].operand_ids[:]
    # Results by their numbers, values by what follows those.
    graph: nx.Graph[int] = nx.Graph()
    for number, result in enumerate(results):
        graph.add_node(number)
        for name in _sources(instructions, result):
            if instructions[name].opcode != "parameter" and shape_of(instructions[name].shape).bytes > _SMALL:
                graph.add_edge(number, len(results) + name)
    return sorted(
        sorted(number for number in connected if number < len(results)) for connected in nx.connected_components(graph)
    )


def _sources(instructions: Mapping[int, InstructionProto], name: int) -> set[int]:
    """What a value is made of, itself included."""
    found, waiting = {name}, [name]
    while waiting:
        instruction = instructions[waiting.pop()]
        fresh = {*instruction.operand_ids[:], *instruction.control_predecessor_ids[:]} - found
        found |= fresh
        waiting += fresh
    return found


def _together(connected: Sequence[list[int]], sizes: Sequence[int]) -> list[list[int]]:
    """As few groups as have each its share of the bytes, or, where something large is connected, more."""
    share = sum(sizes) / MOST_PARTS
    groups: list[list[int]] = [[]]
    held = 0
    for numbers in connected:
        if held >= share:
            groups.append([])
            held = 0
        groups[-1] += numbers
        held += sum(sizes[number] for number in numbers)
    return groups


def _part(halves: Split, made: list[int]) -> PreparationPart:
    assert halves.preparation is not None
    module = Module.from_bytes(halves.preparation)
    entry = module.entry
    root = next(instruction for instruction in entry.instructions if instruction.id == entry.root_id)
    values = [root.operand_ids[number] for number in made]
    instructions = [instruction for instruction in entry.instructions if instruction.id != root.id]
    root_id = values[0]
    if len(made) > 1:
        fresh = max(instruction.id for instruction in entry.instructions) + 1
        shapes = [root.shape.tuple_shapes[number] for number in made]
        instructions.append(new_tuple(module, fresh, values, shapes, "this_part"))
        root_id = fresh
    needed = made_of(instructions, root_id)
    taken = sorted(instruction.parameter_number for instruction in needed if instruction.opcode == "parameter")
    put_back(module, {entry.id: Edit(needed, root_id)})
    renumber_parameters(module, taken)
    verify(module)
    return PreparationPart(module.to_bytes(), [halves.read[number] for number in taken], made)
