"""Split of a module at the frontier: prologue (computes the static values) and steady-state program (the rest)."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.entry_parameters import remove_donation, renumber_parameters
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, InstructionProto
from hlo_dispatch.ir.shape import Shape, in_memory_order
from hlo_dispatch.ir.split_module import PreprocessedValue, Split
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.edit import replace_computations
from hlo_dispatch.passes.instruction_order import reachable_from_root
from hlo_dispatch.passes.module_rewriter import ComputationRewriter, Edit
from hlo_dispatch.passes.partition.frontier import Partition, find_partition


def split_at(
    serialized: bytes, frozen: AbstractSet[int], threads: int, prepacked: AbstractSet[str] = frozenset()
) -> Split:
    """Split an optimized module into prologue and steady-state program.

    Args:
        serialized: its entry takes row-major arrays and returns one or a tuple of them.
        frozen: numbers of the frozen parameters.
        threads: number of XLA's threads.
        prepacked: names of the instructions whose results are prepacked weights.

    Raises:
        ModuleError: the bytes are not a module.
        RewriteUnsupported: an instruction has a control dependency on a static value.
    """
    steady_state = _Half(serialized, threads)
    dynamic_inputs = _dynamic_inputs(steady_state.module, frozen)
    partition = find_partition(steady_state.graph, frozen)
    preprocessed = [
        PreprocessedValue(in_memory_order(n.shape), n.name, n.name in prepacked) for n in partition.frontier
    ]
    program, frozen_inputs = steady_state.program(partition, frozen)
    if not preprocessed:
        return Split(None, (), (), program, frozen_inputs, dynamic_inputs)
    prologue_half = _Half(serialized, threads)
    prologue, inputs = prologue_half.prologue(find_partition(prologue_half.graph, frozen))
    return Split(prologue, inputs, preprocessed, program, frozen_inputs, dynamic_inputs)


def without_prologue(serialized: bytes, frozen: AbstractSet[int]) -> Split:
    """The module without a prologue: it reads its weights unprocessed; dead frozen parameters are dropped.

    Raises:
        ModuleError: the bytes are not a module.
    """
    module = Module.from_bytes(serialized)
    module.proto.ClearField("schedule")
    dynamic_inputs = _dynamic_inputs(module, frozen)
    edit = Edit(module.entry.instructions[:], module.entry.root_id)
    frozen_inputs = _read_frozen_inputs(edit, frozen)
    return Split(
        None, (), (), _finished(module, edit, [*frozen_inputs, *dynamic_inputs]), frozen_inputs, dynamic_inputs
    )


def _dynamic_inputs(module: Module, frozen: AbstractSet[int]) -> list[int]:
    """Numbers of the parameters that are not frozen."""
    return [number for number in range(len(module.entry.program_shape.parameters)) if number not in frozen]


def _read_frozen_inputs(edit: Edit, frozen: AbstractSet[int]) -> list[int]:
    """Numbers of the frozen parameters that the program reads; drops the dead ones."""
    inputs = {edit.root_id}
    for proto in edit.instructions:
        inputs.update(proto.operand_ids[:])
        inputs.update(proto.control_predecessor_ids[:])
    edit.instructions = [
        proto
        for proto in edit.instructions
        if proto.opcode != "parameter" or proto.id in inputs or proto.parameter_number not in frozen
    ]
    return sorted(
        proto.parameter_number
        for proto in edit.instructions
        if proto.opcode == "parameter" and proto.parameter_number in frozen
    )


def _finished(module: Module, edit: Edit, order: Sequence[int]) -> bytes:
    """The module with its entry rewritten and its parameters in this order."""
    replace_computations(module, {module.entry.id: edit})
    renumber_parameters(module, order)
    verify(module)
    return module.to_bytes()


class _Half:
    """A copy of the module that becomes one of the halves; used once."""

    def __init__(self, serialized: bytes, threads: int) -> None:
        self.module = Module.from_bytes(serialized)
        # The schedule of the unsplit module fits neither half.
        self.module.proto.ClearField("schedule")
        self.graph = FlatGraph(self.module, self.module.entry)
        self.parameters = len(self.module.entry.program_shape.parameters)
        self._threads = threads

    def program(self, partition: Partition, frozen: AbstractSet[int]) -> tuple[bytes, list[int]]:
        """The steady-state program, and numbers of the frozen parameters that it reads."""
        rewriter = ComputationRewriter(
            self.module, self.graph, self._threads, covered=partition.removed, results=partition.frontier
        )

        def emit() -> Node:
            for number, node in enumerate(partition.frontier):
                _add_parameter(rewriter, node, self.parameters + number)
            return self.graph.root

        edit = rewriter.edit(emit)
        frozen_inputs = _read_frozen_inputs(edit, frozen)
        new_parameters = range(self.parameters, self.parameters + len(partition.frontier))
        return self._finished(
            edit, [*new_parameters, *frozen_inputs, *_dynamic_inputs(self.module, frozen)]
        ), frozen_inputs

    def prologue(self, partition: Partition) -> tuple[bytes, list[int]]:
        """The prologue, and numbers of the frozen parameters that it reads."""
        # None of its results aliases a parameter.
        remove_donation(self.module)
        rewriter = ComputationRewriter(self.module, self.graph, self._threads)
        edit = rewriter.edit(lambda: _add_results(rewriter, partition.frontier))
        edit.instructions = reachable_from_root(edit.instructions, edit.root_id)
        inputs = sorted(proto.parameter_number for proto in edit.instructions if proto.opcode == "parameter")
        return self._finished(edit, inputs), inputs

    def _finished(self, edit: Edit, order: Sequence[int]) -> bytes:
        self.graph.break_reference_cycles()
        return _finished(self.module, edit, order)


def _add_parameter(rewriter: ComputationRewriter, node: Node, number: int) -> None:
    """Add a parameter to the steady-state program for a preprocessed value."""
    value_id, row_major_shape = rewriter.identifier(node), in_memory_order(node.shape)
    if row_major_shape == node.shape:
        _parameter(rewriter, node, value_id, node.shape).parameter_number = number
        return
    parameter = _parameter(rewriter, node, rewriter.fresh_id(), row_major_shape)
    parameter.parameter_number = number
    _bitcast(rewriter, node, value_id, node.shape, parameter.id)


def _add_results(rewriter: ComputationRewriter, frontier: Sequence[Node]) -> int:
    """Add the results of the prologue: row-major arrays of the same bytes, several of them as a tuple."""
    if len(frontier) == 1:
        return _in_memory_order(rewriter, frontier[0])
    root = rewriter.new("tuple", "preprocessed_values", rewriter.fresh_id(), frontier[-1])
    root.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
    for node in frontier:
        root.operand_ids.append(_in_memory_order(rewriter, node))
        root.shape.tuple_shapes.append(in_memory_order(node.shape).to_proto())
    rewriter.place(root, frontier[-1])
    return root.id


def _in_memory_order(rewriter: ComputationRewriter, node: Node) -> int:
    identifier, row_major_shape = rewriter.identifier(node), in_memory_order(node.shape)
    if row_major_shape == node.shape:
        return identifier
    return _bitcast(rewriter, node, rewriter.fresh_id(), row_major_shape, identifier)


def _parameter(rewriter: ComputationRewriter, node: Node, identifier: int, shape: Shape) -> InstructionProto:
    proto = rewriter.new("parameter", "preprocessed", identifier, node)
    proto.shape.CopyFrom(shape.to_proto())
    rewriter.place(proto, node)
    return proto


def _bitcast(rewriter: ComputationRewriter, node: Node, identifier: int, shape: Shape, operand: int) -> int:
    proto = rewriter.new("bitcast", "renamed", identifier, node)
    proto.shape.CopyFrom(shape.to_proto())
    proto.operand_ids.append(operand)
    rewriter.place(proto, node)
    return identifier
