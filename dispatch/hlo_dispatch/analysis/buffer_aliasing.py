"""Buffer aliasing: which elements of a computation's parameters share a buffer with which elements of its result.

XLA has decided this before the pipeline runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from hlo_dispatch.analysis.in_place_updates import UPDATES, writes_in_place
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, ComputationProto, InstructionProto, ModuleProto, ShapeProto

if TYPE_CHECKING:
    import networkx as nx

_TUPLE = ELEMENT_TYPE_NUMBERS["tuple"]
_LOOPS_AND_BRANCHES = frozenset(("while", "conditional"))

Pair = tuple[tuple[int, ...], int | None]
"""(parameter number, tuple index…), index into the result tuple or None for the whole result."""
_Position = tuple[int, int, tuple[int, ...]]
"""(computation id, instruction id, tuple index…): an array in a buffer, XLA's HloPosition."""


class BufferAliasing:
    """The aliased pairs of one module; caches its indexes, so the module must not change meanwhile."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def pairs(self, computation: ComputationProto) -> list[Pair]:
        """Pairs of a parameter's element and a result's element that may share a buffer."""
        caller = self._callers.get(computation.id)
        if caller is not None and caller.opcode == "conditional":
            return self._of_branch(computation)
        return self.certain_pairs(computation)

    def certain_pairs(self, computation: ComputationProto) -> list[Pair]:
        """Those that do share one, which is the computation's to overwrite.

        A branch has none: its operand may be an argument that the caller keeps.
        """
        if computation.id == self._module.proto.entry_computation_id:
            return _donated(self._module)
        caller = self._callers.get(computation.id)
        # A while calls its body first, then its condition, whose state aliases nothing.
        if caller is not None and caller.opcode == "while" and computation.id == caller.called_computation_ids[0]:
            if caller.shape.element_type != _TUPLE:  # the state is a single array
                return [((0,), None)]
            return [((0, index), index) for index in range(len(caller.shape.tuple_shapes))]
        return []

    @cached_property
    def _callers(self) -> dict[int, InstructionProto]:
        """Id of a loop's or a branch's computation → an instruction that calls it."""
        return {
            called: instruction
            for computation, _ in self._module.control_flow_computations()
            if not _LOOPS_AND_BRANCHES.isdisjoint(self._module.opcodes_of(computation.id))
            for instruction in computation.instructions[:]
            if instruction.opcode in _LOOPS_AND_BRANCHES
            for called in instruction.called_computation_ids[:]
        }

    def _of_branch(self, branch: ComputationProto) -> list[Pair]:
        """The pairs of a branch, which depend on the origin of its operand and the users of its result."""
        results = list(_positions(branch, _instruction(branch, branch.root_id)))
        pairs: list[Pair] = []
        for parameter in branch.instructions[:]:
            if parameter.opcode == "parameter":
                for position in _positions(branch, parameter):
                    buffer = self._buffers.get(position)
                    part = (parameter.parameter_number, *position[2])
                    shared = [
                        result for result in results if buffer is not None and self._buffers.get(result) == buffer
                    ]
                    pairs += [(part, result[2][0] if result[2] else None) for result in shared]
        return pairs

    @cached_property
    def _buffers(self) -> dict[_Position, int]:
        """Position → number of its buffer."""
        import networkx as nx  # a fifth of a second, which only programs with branches have to pay

        buffers = enumerate(nx.connected_components(_aliasing_graph(self._module)))
        return {position: number for number, positions in buffers for position in positions}


NO_ALIASING = BufferAliasing(Module(ModuleProto()))
"""Of a draft that becomes a computation with other parameters and results."""


def _donated(module: Module) -> list[Pair]:
    return [
        (
            (entry.parameter_number, *entry.parameter_shape_index),
            entry.output_shape_index[0] if entry.output_shape_index else None,
        )
        for entry in module.proto.input_output_alias.entries
    ]


def _aliasing_graph(module: Module) -> nx.Graph[_Position]:
    """Graph of positions, with an edge between two that share a buffer."""
    import networkx as nx

    graph: nx.Graph[_Position] = nx.Graph()
    for computation, _ in module.control_flow_computations():
        by_id = {instruction.id: instruction for instruction in computation.instructions[:]}
        for instruction in by_id.values():
            operands = [by_id[operand] for operand in instruction.operand_ids[:]]
            for (where, one, path), (there, other, rest) in _aliased_values(module, computation, instruction, operands):
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


_Value = tuple[ComputationProto, InstructionProto, tuple[int, ...]]
"""(computation, instruction, tuple index…): an instruction's value or an element of it."""


def _aliased_values(
    module: Module, caller: ComputationProto, instruction: InstructionProto, operands: list[InstructionProto]
) -> Iterator[tuple[_Value, _Value]]:
    """Pairs of values of the same type that share their buffers because of one instruction."""
    opcode, value = instruction.opcode, (caller, instruction, ())
    if opcode == "tuple":
        yield from (((caller, operand, ()), (caller, instruction, (n,))) for n, operand in enumerate(operands))
    elif opcode == "get-tuple-element":
        yield value, (caller, operands[0], (instruction.tuple_index,))
    elif opcode in UPDATES or opcode in ("bitcast", "while"):
        yield value, (caller, operands[0], ())
    elif opcode == "fusion":
        # An in-place update overwrites an operand of its own type.
        if writes_in_place(module, instruction):
            yield from ((value, (caller, o, ())) for o in operands if o.shape == instruction.shape)
    if opcode in ("while", "call", "conditional"):
        for number, identifier in enumerate(instruction.called_computation_ids[:]):
            arguments = operands[number + 1 :] if opcode == "conditional" else operands
            yield from _parameter_bindings(module.computations[identifier], caller, arguments)
            if opcode != "while" or number == 0:  # a loop's condition returns no part of its state
                inner = module.computations[identifier]
                yield value, (inner, _instruction(inner, inner.root_id), ())


def _parameter_bindings(
    inner: ComputationProto, caller: ComputationProto, arguments: list[InstructionProto]
) -> Iterator[tuple[_Value, _Value]]:
    for parameter in inner.instructions[:]:
        if parameter.opcode == "parameter":
            yield (inner, parameter, ()), (caller, arguments[parameter.parameter_number], ())


def _positions(computation: ComputationProto, instruction: InstructionProto) -> Iterator[_Position]:
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
