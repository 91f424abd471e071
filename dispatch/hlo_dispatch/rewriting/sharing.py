"""Which parts of a computation's parameters lie where which parts of its result do, as XLA has already decided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.schema import ELEMENT_TYPE_NUMBERS, ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.rewriting.in_place import UPDATES, writes_in_place

if TYPE_CHECKING:
    import networkx as nx

_TUPLE = ELEMENT_TYPE_NUMBERS["tuple"]

Pair = tuple[tuple[int, ...], int | None]
"""(parameter number, tuple index…), index into the result tuple or None for the whole result."""
_Place = tuple[int, int, tuple[int, ...]]
"""A computation's id, an instruction's in it, tuple index…: something that lies in a buffer."""


def shared_pairs(module: Module, computation: ComputationProto) -> list[Pair]:
    """Which parts of a computation's parameters share a buffer with which parts of its result."""
    if computation.id == module.proto.entry_computation_id:
        return _donated(module)
    for caller in module.proto.computations[:]:
        for instruction in caller.instructions[:]:
            if computation.id in instruction.called_computation_ids[:]:
                # A while calls its body first, then its condition, whose state shares with nothing.
                if instruction.opcode == "while" and computation.id == instruction.called_computation_ids[0]:
                    count = len(instruction.shape.tuple_shapes)
                    return [((0, index), index) for index in range(count)]
                if instruction.opcode == "conditional":
                    return _of_branch(module, computation)
    return []


def _donated(module: Module) -> list[Pair]:
    return [
        (
            (entry.parameter_number, *entry.parameter_shape_index),
            entry.output_shape_index[0] if entry.output_shape_index else None,
        )
        for entry in module.proto.input_output_alias.entries
    ]


def _of_branch(module: Module, branch: ComputationProto) -> list[Pair]:
    """A branch's pairs depend on where its operand came from and on where its result goes."""
    import networkx as nx  # a fifth of a second, which only programs with branches have to pay

    lies_with = _buffers(module)
    results = list(_places(branch, _instruction(branch, branch.root_id)))
    pairs: list[Pair] = []
    for parameter in branch.instructions[:]:
        if parameter.opcode == "parameter":
            for place in _places(branch, parameter):
                if place in lies_with:
                    shared = nx.node_connected_component(lies_with, place)
                    part = (parameter.parameter_number, *place[2])
                    pairs += [(part, result[2][0] if result[2] else None) for result in results if result in shared]
    return pairs


def _buffers(module: Module) -> nx.Graph[_Place]:
    """Places, with an edge between two that lie in one buffer, whatever else does."""
    import networkx as nx

    graph: nx.Graph[_Place] = nx.Graph()
    for computation, _ in module.control_flow_computations():
        by_id = {instruction.id: instruction for instruction in computation.instructions[:]}
        for instruction in by_id.values():
            operands = [by_id[operand] for operand in instruction.operand_ids[:]]
            for (where, one, path), (there, other, rest) in _joined(module, computation, instruction, operands):
                graph.add_edges_from(
                    ((where.id, one.id, (*path, *leaf)), (there.id, other.id, (*rest, *leaf)))
                    for leaf in _leaves(_part(one.shape, path))
                )
    entry = module.entry
    for (number, *path), result in _donated(module):
        parameter = next(i for i in entry.instructions[:] if i.opcode == "parameter" and i.parameter_number == number)
        graph.add_edge(
            (entry.id, parameter.id, tuple(path)), (entry.id, entry.root_id, () if result is None else (result,))
        )
    return graph


_Part = tuple[ComputationProto, InstructionProto, tuple[int, ...]]
"""A part of an instruction's value."""


def _joined(
    module: Module, here: ComputationProto, instruction: InstructionProto, operands: list[InstructionProto]
) -> Iterator[tuple[_Part, _Part]]:
    """Parts of values that have the same type and lie in the same buffers, because of one instruction."""
    opcode, whole = instruction.opcode, (here, instruction, ())
    if opcode == "tuple":
        yield from (((here, operand, ()), (here, instruction, (n,))) for n, operand in enumerate(operands))
    elif opcode == "get-tuple-element":
        yield whole, (here, operands[0], (instruction.tuple_index,))
    elif opcode in UPDATES or opcode in ("bitcast", "while"):
        yield whole, (here, operands[0], ())
    elif opcode == "fusion":
        # One that updates in place writes over an operand of its own type.
        if writes_in_place(module, instruction):
            yield from ((whole, (here, o, ())) for o in operands if o.shape == instruction.shape)
    if opcode in ("while", "call", "conditional"):
        for number, identifier in enumerate(instruction.called_computation_ids[:]):
            given = operands[number + 1 :] if opcode == "conditional" else operands
            yield from _entered(module.computations[identifier], here, given)
            if opcode != "while" or number == 0:  # a loop's condition returns no part of its state
                inner = module.computations[identifier]
                yield whole, (inner, _instruction(inner, inner.root_id), ())


def _entered(
    inner: ComputationProto, here: ComputationProto, given: list[InstructionProto]
) -> Iterator[tuple[_Part, _Part]]:
    for parameter in inner.instructions[:]:
        if parameter.opcode == "parameter":
            yield (inner, parameter, ()), (here, given[parameter.parameter_number], ())


def _places(computation: ComputationProto, instruction: InstructionProto) -> Iterator[_Place]:
    for leaf in _leaves(instruction.shape):
        yield computation.id, instruction.id, leaf


def _leaves(shape: ShapeProto) -> Iterator[tuple[int, ...]]:
    """Paths to the arrays of a shape."""
    if shape.element_type != _TUPLE:
        yield ()
    for number, element in enumerate(shape.tuple_shapes[:]):
        yield from ((number, *rest) for rest in _leaves(element))


def _part(shape: ShapeProto, path: tuple[int, ...]) -> ShapeProto:
    for number in path:
        shape = shape.tuple_shapes[number]
    return shape


def _instruction(computation: ComputationProto, identifier: int) -> InstructionProto:
    return next(instruction for instruction in computation.instructions[:] if instruction.id == identifier)
