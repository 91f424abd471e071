"""Clone into the parent computation: copies the instructions that compute static values of a loop body or a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.entry_parameters import remove_donation
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.passes.instruction_order import reachable_from_root
from hlo_dispatch.passes.module_rewriter import ComputationRewriter


@dataclass
class ClonedValues:
    """The clones, ready to be inserted into the parent computation."""

    instructions: list[InstructionProto] = field(default_factory=list[InstructionProto])
    """Operands before users."""
    computations: list[ComputationProto] = field(default_factory=list[ComputationProto])
    """The computations that they call, callees first; all new, since each fusion has its own computation."""
    results: list[InstructionProto] = field(default_factory=list[InstructionProto])
    """The clone of each selected value."""


def clone_values(
    module: Module,
    child: ComputationProto,
    select: Callable[[FlatGraph], Sequence[Node]],
    parent_ids: Mapping[int, int],
    first_id: int,
    threads: int,
) -> ClonedValues:
    """Clone the instructions that compute some values of `child`; the module does not change.

    Args:
        child: the child computation; it takes one tuple.
        select: returns the values, in the flat view of a copy of the child.
        parent_ids: index of a tuple element that they depend on → id of that element in the parent.
        first_id: the first free id of the parent.
        threads: number of XLA's threads.

    Raises:
        RewriteUnsupported: an instruction has a control dependency on one that the values depend on.
    """
    source = Module.from_bytes(module.to_bytes())
    graph = FlatGraph(source, source.computations[child.id])
    values = select(graph)
    # As the entry of its own module it carries no loop state.
    source.proto.entry_computation_id = child.id
    remove_donation(source)
    rewriter = ComputationRewriter(source, graph, threads)
    value_ids: list[int] = []
    parameter = -1

    def emit() -> int:
        value_ids.extend(rewriter.identifier(value) for value in values)
        root = rewriter.new("tuple", "cloned_values", rewriter.fresh_id(), values[-1])
        root.operand_ids.extend(value_ids)
        rewriter.place(root, values[-1])
        return root.id

    edit = rewriter.edit(emit)
    source.computations.update((computation.id, computation) for computation in edit.computations)
    cloner, clone_ids = _Cloner(module, source, first_id), dict[int, int]()
    for proto in reachable_from_root(edit.instructions, edit.root_id)[:-1]:
        if proto.opcode == "parameter":
            parameter = proto.id
        elif proto.opcode == "get-tuple-element" and proto.operand_ids[0] == parameter:
            clone_ids[proto.id] = parent_ids[proto.tuple_index]
        else:
            clone_ids[proto.id] = cloner.instruction(proto, clone_ids)
    by_id = {proto.id: proto for proto in cloner.cloned.instructions}
    cloner.cloned.results = [by_id[clone_ids[identifier]] for identifier in value_ids]
    graph.break_reference_cycles()
    return cloner.cloned


class _Cloner:
    """Copies instructions of one module into another, with new ids and names."""

    def __init__(self, module: Module, source: Module, first_id: int) -> None:
        self.cloned = ClonedValues()
        self._module, self._source, self._fresh = module, source, first_id

    def instruction(self, proto: InstructionProto, clone_ids: Mapping[int, int]) -> int:
        """Clone one instruction; returns the clone's id."""
        copy = self._copy(proto, self._fresh, clone_ids)
        self._fresh += 1
        self.cloned.instructions.append(copy)
        return copy.id

    def _copy(self, proto: InstructionProto, identifier: int, clone_ids: Mapping[int, int]) -> InstructionProto:
        copy = copy_of(proto)
        copy.id, copy.name = identifier, self._module.fresh_name(proto.name)
        copy.operand_ids[:] = [clone_ids[operand] for operand in proto.operand_ids[:]]
        copy.control_predecessor_ids[:] = [clone_ids[other] for other in proto.control_predecessor_ids[:]]
        copy.called_computation_ids[:] = [self._computation(called) for called in proto.called_computation_ids[:]]
        return copy

    def _computation(self, identifier: int) -> int:
        called = self._source.computations[identifier]
        copy = ComputationProto()
        copy.CopyFrom(called)
        copy.id, copy.name = self._module.fresh_computation_id(), self._module.fresh_name(called.name)
        del copy.instructions[:]
        clone_ids: dict[int, int] = {}
        for number, proto in enumerate(called.instructions[:]):
            clone_ids[proto.id] = (copy.id << 32) + number
            copy.instructions.append(self._copy(proto, clone_ids[proto.id], clone_ids))
        copy.root_id = clone_ids[called.root_id]
        self.cloned.computations.append(copy)
        return copy.id
