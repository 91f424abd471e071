"""Some values of a computation, computed in another one that has what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.entry_parameters import keep_inputs
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.passes.instruction_order import made_of
from hlo_dispatch.passes.module_rewriter import Rebuilder


@dataclass
class Transplanted:
    """What computes the values in their new place."""

    instructions: list[InstructionProto] = field(default_factory=list[InstructionProto])
    """Operands before users."""
    computations: list[ComputationProto] = field(default_factory=list[ComputationProto])
    """What they call, callees first; new ones, for a fusion has its computation to itself."""
    results: list[InstructionProto] = field(default_factory=list[InstructionProto])
    """The instruction of each value."""


def transplant(
    module: Module,
    inner: ComputationProto,
    choose: Callable[[FlatGraph], Sequence[Node]],
    elements: Mapping[int, int],
    fresh: int,
    threads: int,
) -> Transplanted:
    """Copy what computes some values of `inner`; the module stays as it is.

    Args:
        inner: takes one tuple.
        choose: names the values, in the flat view of a copy of `inner`.
        elements: which of the tuple's elements they are made of → the ids that these have in the new place.
        fresh: the first id that nothing has there.
        threads: how many XLA computes with.

    Raises:
        CannotRebuild: something has to run after what the values are made of.
    """
    source = Module.from_bytes(module.to_bytes())
    graph = FlatGraph(source, source.computations[inner.id])
    values = choose(graph)
    # As a program of its own nothing of it is a loop's state.
    source.proto.entry_computation_id = inner.id
    keep_inputs(source)
    rebuilder = Rebuilder(source, graph, threads)
    ids: list[int] = []
    parameter = -1

    def make() -> int:
        ids.extend(rebuilder.identifier(value) for value in values)
        root = rebuilder.new("tuple", "transplanted", rebuilder.fresh_id(), values[-1])
        root.operand_ids.extend(ids)
        rebuilder.place(root, values[-1])
        return root.id

    edit = rebuilder.edit(make)
    source.computations.update((computation.id, computation) for computation in edit.computations)
    move, where = _Move(module, source, fresh), dict[int, int]()
    for proto in made_of(edit.instructions, edit.root_id)[:-1]:
        if proto.opcode == "parameter":
            parameter = proto.id
        elif proto.opcode == "get-tuple-element" and proto.operand_ids[0] == parameter:
            where[proto.id] = elements[proto.tuple_index]
        else:
            where[proto.id] = move.instruction(proto, where)
    by_id = {proto.id: proto for proto in move.made.instructions}
    move.made.results = [by_id[where[identifier]] for identifier in ids]
    graph.take_apart()
    return move.made


class _Move:
    """Instructions of one module, written anew for another."""

    def __init__(self, module: Module, source: Module, fresh: int) -> None:
        self.made = Transplanted()
        self._module, self._source, self._fresh = module, source, fresh

    def instruction(self, proto: InstructionProto, where: Mapping[int, int]) -> int:
        """Write one; returns its id."""
        copy = self._copy(proto, self._fresh, where)
        self._fresh += 1
        self.made.instructions.append(copy)
        return copy.id

    def _copy(self, proto: InstructionProto, identifier: int, where: Mapping[int, int]) -> InstructionProto:
        copy = copy_of(proto)
        copy.id, copy.name = identifier, self._module.fresh_name(proto.name)
        copy.operand_ids[:] = [where[operand] for operand in proto.operand_ids[:]]
        copy.control_predecessor_ids[:] = [where[other] for other in proto.control_predecessor_ids[:]]
        copy.called_computation_ids[:] = [self._computation(called) for called in proto.called_computation_ids[:]]
        return copy

    def _computation(self, identifier: int) -> int:
        called = self._source.computations[identifier]
        copy = ComputationProto()
        copy.CopyFrom(called)
        copy.id, copy.name = self._module.fresh_computation_id(), self._module.fresh_name(called.name)
        del copy.instructions[:]
        where: dict[int, int] = {}
        for number, proto in enumerate(called.instructions[:]):
            where[proto.id] = (copy.id << 32) + number
            copy.instructions.append(self._copy(proto, where[proto.id], where))
        copy.root_id = where[called.root_id]
        self.made.computations.append(copy)
        return copy.id
