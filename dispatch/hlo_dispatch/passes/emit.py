"""Kernel calls put into a computation, in place of what they match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlo_dispatch.analysis.buffer_aliasing import Sharing
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI, ELEMENT_TYPE_NUMBERS
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.match.protocol import CallableMatch
from hlo_dispatch.passes.backend_config import to_text
from hlo_dispatch.passes.module_rewriter import Edit, Rebuilder


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A match that was decided: everything its custom-call says."""

    match: CallableMatch
    target: str
    attributes: dict[str, Any]
    scratch_bytes: int | None
    """Working memory, one more result; None: there is none."""
    backend_config: str = ""
    """The attributes as text, if it exists already."""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The call's results; several are a tuple."""
        scratch = () if self.scratch_bytes is None else (row_major("u8", (self.scratch_bytes,)),)
        return (*self.match.result_shapes, *scratch)

    @property
    def is_plain(self) -> bool:
        """Whether its one result is no tuple."""
        return len(self.shapes) == 1


class Emitter:
    """Writes the kernel calls of one computation."""

    def __init__(
        self, module: Module, graph: FlatGraph, calls: list[KernelCall], threads: int, sharing: Sharing
    ) -> None:
        self._graph, self._calls = graph, calls
        self.names: dict[Node, str] = {}
        """Anchor, or a pattern's result → the name of its custom-call; after `edit()`."""
        covered = {node for call in calls for node in call.match.covered}
        results = [result for call in calls for result in call.match.results if result is not None]
        self._rebuilder = Rebuilder(module, graph, threads, covered=covered, results=results, sharing=sharing)

    def edit(self) -> Edit:
        """The computation with its kernel calls in place.

        Raises:
            CannotRebuild: the surroundings do not allow it.
        """
        return self._rebuilder.edit(self._emit_calls)

    def _emit_calls(self) -> Node:
        for call in self._calls:
            self._emit_call(call)
        return self._graph.root

    def _emit_call(self, call: KernelCall) -> None:
        match, anchor = call.match, call.match.node
        is_plain, rebuilder = call.is_plain, self._rebuilder
        identifier = rebuilder.identifier(match.output) if is_plain else rebuilder.fresh_id()
        proto = rebuilder.new("custom-call", call.target.rpartition(".")[2], identifier, anchor)
        if is_plain:
            proto.shape.CopyFrom(match.output.shape.to_proto())
        else:
            for shape in call.shapes:
                proto.shape.tuple_shapes.append(shape.to_proto())
            proto.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
        proto.operand_ids.extend(rebuilder.identifier(view.node) for view in match.operands)
        proto.custom_call_target = call.target
        proto.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
        proto.backend_config = (call.backend_config or to_text(call.attributes)).encode()
        self.names[anchor] = proto.name
        rebuilder.place(proto, match.output if is_plain else anchor)
        if is_plain:
            return
        for number, value in enumerate(match.results):
            if value is not None:
                result = rebuilder.new("get-tuple-element", f"{proto.name}.result", rebuilder.identifier(value), anchor)
                result.shape.CopyFrom(value.shape.to_proto())
                result.operand_ids.append(proto.id)
                result.tuple_index = number
                rebuilder.place(result, value)
