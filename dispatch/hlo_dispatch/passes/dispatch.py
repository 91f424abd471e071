"""Dispatch: replaces the matched instructions of each computation by kernel calls, as planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.kernel_call import KernelCall, OperandSlice, has_slices
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.match import Match
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.module_rewriter import ComputationRewriter
from hlo_dispatch.passes.stacked_operands import StackedOperands
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported
from hlo_dispatch.selection.candidate import Candidate


def lower(module: Module, context: PassContext) -> set[int]:
    """Replace what the plans dispatch by kernel calls; refuses those of a computation that cannot be rewritten."""
    editors: list[Editor] = []
    aliasing = BufferAliasing(module)
    targets = {name: kernel.target for name, kernel in context.table.kernels.items()}
    for plan in context.plans:
        if not plan.dispatched:
            continue
        try:
            emitter = _Emitter(module, plan.graph, plan.dispatched, targets, context.threads, aliasing)
            editors.append(emitter.draft())
            plan.calls = emitter.names
        except RewriteUnsupported as problem:
            plan.refuse_dispatched(str(problem))
    if editors:
        # The schedule of a dumped compiled module names instructions that are removed; at XLA's hook there is none yet.
        module.proto.ClearField("schedule")
    return commit(module, editors)


class _Emitter:
    """Emits the kernel calls of one computation."""

    def __init__(
        self,
        module: Module,
        graph: FlatGraph,
        calls: Sequence[Candidate],
        targets: Mapping[str, str],
        threads: int,
        aliasing: BufferAliasing,
    ) -> None:
        self._graph, self._calls, self._targets = graph, calls, targets
        self.names: dict[Node, str] = {}
        """Anchor, or a pattern's result → name of its custom-call; set by `draft()`."""
        covered = {node for call in calls for node in call.match.covered}
        results = [result for call in calls for result in call.match.results if result is not None]
        self._rewriter = ComputationRewriter(
            module, graph, threads, covered=covered, results=results, aliasing=aliasing
        )
        self._stacked_operands = StackedOperands(module, graph, aliasing, set(results))

    def draft(self) -> Editor:
        """The computation with its kernel calls.

        Raises:
            RewriteUnsupported: an instruction has a control dependency on a replaced one.
        """
        return self._rewriter.rewrite(self._emit_calls)

    def _emit_calls(self) -> Node:
        for call in self._calls:
            self._emit_call(call)
        return self._graph.root

    def _emit_call(self, candidate: Candidate) -> None:
        match, anchor, rewriter = candidate.match, candidate.match.node, self._rewriter
        target = self._targets[match.kernel]
        operands, slices = self._operands(match, may_slice=has_slices(target))
        shapes = tuple(match.result_shapes)
        call = KernelCall(target, operands, candidate.attributes, shapes, candidate.scratch_bytes, slices)
        stem = call.target.rpartition(".")[2]
        if len(call.shapes) == 1:
            identifier = rewriter.identifier(match.output)
            instruction = rewriter.near(match.output, anchor).kernel_call(call, stem, identifier)
            self.names[anchor] = instruction.name
            return
        builder = rewriter.near(anchor)
        instruction = builder.kernel_call(call, stem)
        self.names[anchor] = instruction.name
        for number, value in enumerate(match.results):
            if value is not None:
                rewriter.near(value, anchor).get_tuple_element(
                    instruction.id, number, value.shape, f"{instruction.name}.result", rewriter.identifier(value)
                )

    def _operands(self, match: Match, *, may_slice: bool) -> tuple[tuple[int, ...], Mapping[int, OperandSlice]]:
        """Ids of a call's operands, and the slices of those that are stacked arrays."""
        identifier, slices = self._rewriter.identifier, dict[int, OperandSlice]()
        operands: list[int] = []
        results = [value for value in match.results if value is not None]
        for number, view in enumerate(match.operands.values()):
            found = self._stacked_operands.find(view.node, results) if may_slice else None
            if found is not None:
                elements = view.node.shape.elements
                slices[number] = OperandSlice(identifier(found.index), found.count, found.stride, elements)
            operands.append(identifier(view.node if found is None else found.stack))
        return tuple(operands), slices
