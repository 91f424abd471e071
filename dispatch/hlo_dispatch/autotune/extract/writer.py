"""Extracted module writer: builds a module from nodes of a flat graph, as parameters, instructions and new fusions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.autotune.extract.extracted_module import FROZEN, called_by, is_small_constant
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ModuleProto
from hlo_dispatch.ir.shape import Shape, in_memory_order


def row_major_results(
    builder: InstructionBuilder, values: Sequence[tuple[int, Shape]], stem: str
) -> tuple[int, list[Shape]]:
    """Add row-major results of these values' bytes, several as a tuple; returns the root's id and their shapes."""
    plain = [in_memory_order(shape) for _, shape in values]
    ids = [
        identifier
        if shape == row_major_shape
        else builder.make("bitcast", row_major_shape, identifier, stem=f"{stem}_result.{number}").id
        for number, ((identifier, shape), row_major_shape) in enumerate(zip(values, plain, strict=True))
    ]
    if len(ids) > 1:
        ids = [builder.tuple(ids, [shape.to_proto() for shape in plain], f"{stem}_results").id]
    return ids[0], plain


class ExtractedWriter:
    """Builder of an extracted module's entry computation."""

    def __init__(self, graph: FlatGraph) -> None:
        self.graph = graph
        self._module = Module(ModuleProto(name="region"))
        self.builder = self._builder("region")
        self.entry = self.builder.computation
        self.ids: dict[Node, int] = {}
        """Node → id of its instruction in the entry."""
        self._fused: list[ComputationProto] = []

    def _builder(self, name: str) -> InstructionBuilder:
        # Copied computations keep their ids: a new one's is new to the original module.
        computation = ComputationProto(id=self.graph.module.fresh_computation_id(), name=name)
        computation.execution_thread = self.graph.computation.execution_thread
        return InstructionBuilder(self._module, computation)

    def module(self, copied: Iterable[InstructionProto]) -> Module:
        """The module; `copied`: instructions of the original module in it."""
        entry, proto = self.entry, self._module.proto
        proto.entry_computation_name, proto.entry_computation_id = entry.name, entry.id
        names: set[str] = set()
        proto.computations.extend((*called_by(self.graph.module, copied), *self._fused, entry))
        for instruction in self._module.instructions:
            # It refers to tables of the module that are not copied.
            instruction.ClearField("metadata")
            # Copied computations keep their names, too.
            while instruction.name in names:
                instruction.name += ".again"
            names.add(instruction.name)
        proto.host_program_shape.CopyFrom(entry.program_shape)
        return Module(proto)

    def parameter(self, number: int, shape: Shape, kind: str) -> tuple[int, Shape]:
        """Add a row-major parameter with a value's bytes, and a bitcast where the value has another layout.

        Returns:
            the value's id in the entry, and the parameter's shape.
        """
        plain = in_memory_order(shape)
        identifier = self.builder.parameter(number, plain, f"{kind}.{number}").id
        if plain != shape:
            name = f"region_input_as_given.{number}"
            identifier = self.builder.make("bitcast", shape, identifier, stem=name).id
        return identifier, plain

    def node_parameter(self, node: Node, number: int, kind: str = "region_input") -> Shape:
        """Add a parameter for a node; returns its shape."""
        if node in self.graph.static and kind == "region_input":
            kind = FROZEN
        self.ids[node], plain = self.parameter(number, node.shape, kind)
        return plain

    def results(self, values: Sequence[tuple[int, Shape]]) -> tuple[InstructionProto, list[Shape]]:
        """Add row-major results of these values' bytes, several as a tuple; returns the root and their shapes."""
        root, plain = row_major_results(self.builder, values, "region")
        self.builder.finished(root)
        return next(i for i in self.entry.instructions[:] if i.id == root), plain

    def copy(self, instruction: InstructionProto) -> None:
        """Copy a top-level instruction of the original module."""
        operands = [self.value(self.graph.value_of[operand]) for operand in instruction.operand_ids[:]]
        self.ids[self.graph.value_of[instruction.id]] = self.builder.clone(instruction, operands).id

    def value(self, node: Node) -> int:
        """Id of the node's instruction in the entry; adds a constant at its first use."""
        if node not in self.ids:
            self.ids[node] = self.builder.clone(node.proto, ()).id
        return self.ids[node]

    def fusion(self, nodes: Sequence[Node], root: Node, kind: str, config: bytes) -> None:
        """Add a fusion of `nodes` with the result `root`."""
        number = len(self._fused)
        inner = self._builder(f"part.{number}")
        inside = set(nodes)
        reads = list(dict.fromkeys(o for node in nodes for o in node.operands if o not in inside))
        constants = [node for node in reads if is_small_constant(node.proto) and node not in self.ids]
        parameters = [node for node in reads if node not in constants]
        own: dict[Node, int] = {}
        for place, node in enumerate(parameters):
            own[node] = inner.parameter(place, node.shape, f"part_{number}_input.{place}").id
        for node in (*constants, *nodes):
            own[node] = inner.clone(node.proto, [own[operand] for operand in node.operands]).id
        self._fused.append(inner.finished(own[root]))
        operands = [self.ids[node] for node in parameters]
        fusion = self.builder.fusion(
            inner.computation, operands, root.shape, stem=f"part_{number}", kind=kind, config=config
        )
        self.ids[root] = fusion.id
