"""Split of a module at the frontier: prologue (computes the static values) and steady-state program (the rest)."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.binding_time import PURE, StaticRule
from hlo_dispatch.analysis.buffer_aliasing import NO_ALIASING
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.overwritten_parameters import copy_overwritten
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.entry_parameters import remove_donation, renumber_parameters
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import in_memory_order
from hlo_dispatch.ir.split_module import PreprocessedValue, Split
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.module_rewriter import ComputationRewriter
from hlo_dispatch.passes.partition.frontier import find_partition
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported


def split_off_prologue(module: Module, context: PassContext) -> set[int]:
    """Split a prologue off the module, which becomes the steady-state program; none where that is not supported."""
    frozen = context.frozen | context.widened
    try:
        context.split = split_at(module, frozen, context.threads, context.prepacked, context.static_rule)
    except RewriteUnsupported:
        # A control dependency on a static value.
        context.split = without_prologue(module, frozen)
    return set(module.computations)


def split_at(
    module: Module,
    frozen: AbstractSet[int],
    threads: int,
    prepacked: AbstractSet[str] = frozenset(),
    rule: StaticRule = PURE,
) -> Split:
    """Split an optimized module into prologue and steady-state program, which the module becomes.

    Args:
        module: its entry takes row-major arrays and returns one or a tuple of them.
        frozen: numbers of the frozen parameters.
        threads: number of XLA's threads.
        prepacked: names of the instructions whose results are prepacked weights.
        rule: which values are static.

    Raises:
        RewriteUnsupported: an instruction has a control dependency on a static value.
    """
    # The schedule of the unsplit module fits neither half.
    module.proto.ClearField("schedule")
    graph = FlatGraph(module, module.entry)
    partition = find_partition(graph, frozen, rule)
    frontier = partition.frontier
    split = Split(None, [], [], module, [], _dynamic_inputs(module, frozen))
    if frontier:
        split.prologue = module.copy()
        split.prologue_inputs = _become_prologue(split.prologue, graph, frontier, threads)
        split.preprocessed = [
            PreprocessedValue(in_memory_order(n.shape), n.name, n.name in prepacked) for n in frontier
        ]
    count = len(module.entry.program_shape.parameters)
    rewriter = ComputationRewriter(module, graph, threads, covered=partition.removed, results=frontier)

    def emit() -> Node:
        for number, node in enumerate(frontier, count):
            _add_parameter(rewriter, node, number)
        return graph.root

    draft = rewriter.rewrite(emit)
    graph.break_reference_cycles()
    split.frozen_inputs = _read_frozen_inputs(draft, frozen)
    commit(module, [draft])
    new_parameters = range(count, count + len(frontier))
    copy_overwritten(module, frozenset((*new_parameters, *split.frozen_inputs)))
    renumber_parameters(module, [*new_parameters, *split.frozen_inputs, *split.dynamic_inputs])
    return split


def without_prologue(module: Module, frozen: AbstractSet[int]) -> Split:
    """The module without a prologue: it reads its weights unprocessed; dead frozen parameters are dropped."""
    module.proto.ClearField("schedule")
    draft = Editor(module, module.entry)
    split = Split(None, [], [], module, _read_frozen_inputs(draft, frozen), _dynamic_inputs(module, frozen))
    commit(module, [draft])
    renumber_parameters(module, [*split.frozen_inputs, *split.dynamic_inputs])
    return split


def _dynamic_inputs(module: Module, frozen: AbstractSet[int]) -> list[int]:
    """Numbers of the parameters that are not frozen."""
    return [number for number in range(len(module.entry.program_shape.parameters)) if number not in frozen]


def _read_frozen_inputs(draft: Editor, frozen: AbstractSet[int]) -> list[int]:
    """Numbers of the frozen parameters that the program reads; drops the dead ones."""
    draft.remove_dead_code({i.id for i in draft.parameters() if i.parameter_number in frozen})
    return sorted(i.parameter_number for i in draft.parameters() if i.parameter_number in frozen)


def _become_prologue(module: Module, graph: FlatGraph, frontier: Sequence[Node], threads: int) -> list[int]:
    """Make a copy of the graph's module the prologue; returns the numbers of the frozen parameters that it reads."""
    rewriter = ComputationRewriter(module, graph, threads, aliasing=NO_ALIASING)
    draft = rewriter.rewrite(lambda: _add_results(rewriter, frontier))
    draft.keep_reachable_from_root()
    inputs = sorted(i.parameter_number for i in draft.parameters())
    # None of its results aliases a parameter.
    remove_donation(module)
    commit(module, [draft])
    renumber_parameters(module, inputs)
    return inputs


def _add_parameter(rewriter: ComputationRewriter, node: Node, number: int) -> None:
    """Add a parameter to the steady-state program for a preprocessed value."""
    builder, value_id, row_major_shape = rewriter.near(node), rewriter.identifier(node), in_memory_order(node.shape)
    if row_major_shape == node.shape:
        builder.parameter(number, node.shape, "preprocessed", value_id)
        return
    parameter = builder.parameter(number, row_major_shape, "preprocessed")
    builder.make("bitcast", node.shape, parameter.id, stem="renamed", identifier=value_id)


def _add_results(rewriter: ComputationRewriter, frontier: Sequence[Node]) -> int:
    """Add the results of the prologue: row-major arrays of the same bytes, several of them as a tuple."""
    results = [_in_memory_order(rewriter, node) for node in frontier]
    if len(results) == 1:
        return results[0]
    shapes = [in_memory_order(node.shape).to_proto() for node in frontier]
    return rewriter.near(frontier[-1]).tuple(results, shapes, "preprocessed_values").id


def _in_memory_order(rewriter: ComputationRewriter, node: Node) -> int:
    identifier, row_major_shape = rewriter.identifier(node), in_memory_order(node.shape)
    if row_major_shape == node.shape:
        return identifier
    return rewriter.near(node).make("bitcast", row_major_shape, identifier, stem="renamed").id
