"""Emission of kernel calls: replaces the matched instructions of a computation by custom-calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI, ELEMENT_TYPE_NUMBERS
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.match.match import Match
from hlo_dispatch.passes.backend_config import to_text
from hlo_dispatch.passes.module_rewriter import ComputationRewriter, Edit


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A dispatched match with the contents of its custom-call."""

    match: Match
    target: str
    attributes: dict[str, Any]
    scratch_bytes: int | None
    """Size of the scratch memory, an additional result; None: no scratch memory."""
    backend_config: str = ""
    """The attributes as text, if they were formatted already."""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the call's results; several results form a tuple."""
        scratch = () if self.scratch_bytes is None else (row_major("u8", (self.scratch_bytes,)),)
        return (*self.match.result_shapes, *scratch)

    @property
    def has_single_result(self) -> bool:
        """Whether the call has one result, which is no tuple."""
        return len(self.shapes) == 1


class Emitter:
    """Emits the kernel calls of one computation."""

    def __init__(
        self, module: Module, graph: FlatGraph, calls: list[KernelCall], threads: int, aliasing: BufferAliasing
    ) -> None:
        self._graph, self._calls = graph, calls
        self.names: dict[Node, str] = {}
        """Anchor, or a pattern's result → name of its custom-call; set by `edit()`."""
        covered = {node for call in calls for node in call.match.covered}
        results = [result for call in calls for result in call.match.results if result is not None]
        self._rewriter = ComputationRewriter(
            module, graph, threads, covered=covered, results=results, aliasing=aliasing
        )

    def edit(self) -> Edit:
        """The computation with its kernel calls.

        Raises:
            RewriteUnsupported: an instruction has a control dependency on a replaced one.
        """
        return self._rewriter.edit(self._emit_calls)

    def _emit_calls(self) -> Node:
        for call in self._calls:
            self._emit_call(call)
        return self._graph.root

    def _emit_call(self, call: KernelCall) -> None:
        match, anchor = call.match, call.match.node
        has_single_result, rewriter = call.has_single_result, self._rewriter
        identifier = rewriter.identifier(match.output) if has_single_result else rewriter.fresh_id()
        proto = rewriter.new("custom-call", call.target.rpartition(".")[2], identifier, anchor)
        if has_single_result:
            proto.shape.CopyFrom(match.output.shape.to_proto())
        else:
            for shape in call.shapes:
                proto.shape.tuple_shapes.append(shape.to_proto())
            proto.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
        proto.operand_ids.extend(rewriter.identifier(view.node) for view in match.operands)
        proto.custom_call_target = call.target
        proto.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
        proto.backend_config = (call.backend_config or to_text(call.attributes)).encode()
        self.names[anchor] = proto.name
        rewriter.place(proto, match.output if has_single_result else anchor)
        if has_single_result:
            return
        for number, value in enumerate(match.results):
            if value is not None:
                result = rewriter.new("get-tuple-element", f"{proto.name}.result", rewriter.identifier(value), anchor)
                result.shape.CopyFrom(value.shape.to_proto())
                result.operand_ids.append(proto.id)
                result.tuple_index = number
                rewriter.place(result, value)
