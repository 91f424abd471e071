"""Extracted module writer: builds a module from nodes of a flat graph, as parameters, instructions and new fusions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.autotune.extract.extracted_module import FROZEN, called_by, is_small_constant
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ModuleProto
from hlo_dispatch.ir.shape import Shape, in_memory_order


class ExtractedWriter:
    """Builder of an extracted module's entry computation."""

    def __init__(self, graph: FlatGraph) -> None:
        self.graph = graph
        first = max(graph.module.computations) + 1
        self.entry = ComputationProto(id=first, name="region", execution_thread=graph.computation.execution_thread)
        self.ids: dict[Node, int] = {}
        """Node → id of its instruction in the entry."""
        self._fused: list[ComputationProto] = []

    def module(self, copied: Iterable[InstructionProto]) -> Module:
        """The module; `copied`: instructions of the original module in it."""
        entry = self.entry
        module = ModuleProto(name="region", entry_computation_name="region", entry_computation_id=entry.id)
        names: set[str] = set()
        for computation in (*called_by(self.graph.module, copied), *self._fused, entry):
            module.computations.add().CopyFrom(computation)
            for instruction in module.computations[-1].instructions:
                # It refers to tables of the module that are not copied.
                instruction.ClearField("metadata")
                # A node of the flat graph (a constant, for example) may be in several computations.
                while instruction.name in names:
                    instruction.name += ".again"
                names.add(instruction.name)
        module.host_program_shape.CopyFrom(entry.program_shape)
        return Module(module)

    def parameter(self, node: Node, number: int, kind: str = "region_input") -> Shape:
        """Add a row-major parameter with the value's bytes, and a bitcast where the value has another layout."""
        plain = in_memory_order(node.shape)
        if node in self.graph.static and kind == "region_input":
            kind = FROZEN
        parameter = self.add(self.entry, "parameter", f"{kind}.{number}", plain, [])
        parameter.parameter_number = number
        self.ids[node] = parameter.id
        if plain != node.shape:
            name = f"region_input_as_given.{number}"
            self.ids[node] = self.add(self.entry, "bitcast", name, node.shape, [parameter.id]).id
        return plain

    def copy(self, instruction: InstructionProto) -> None:
        """Copy a top-level instruction of the original module."""
        operands = [self.value(self.graph.value_of[operand]) for operand in instruction.operand_ids]
        copy = self.entry.instructions.add()
        copy.CopyFrom(instruction)
        copy.id = self.ids[self.graph.value_of[instruction.id]] = next_id(self.entry)
        del copy.operand_ids[:]
        copy.operand_ids.extend(operands)
        del copy.control_predecessor_ids[:]

    def value(self, node: Node) -> int:
        """Id of the node's instruction in the entry; adds a constant at its first use."""
        if node not in self.ids:
            copy = self.entry.instructions.add()
            copy.CopyFrom(node.proto)
            copy.id = self.ids[node] = next_id(self.entry)
        return self.ids[node]

    def fusion(self, nodes: Sequence[Node], root: Node, kind: str, config: bytes) -> None:
        """Add a fusion of `nodes` with the result `root`."""
        number = len(self._fused)
        computation = ComputationProto(id=self.entry.id + 1 + number, name=f"part.{number}")
        computation.execution_thread = self.entry.execution_thread
        inside = set(nodes)
        reads = list(dict.fromkeys(o for node in nodes for o in node.operands if o not in inside))
        constants = [node for node in reads if is_small_constant(node.proto) and node not in self.ids]
        parameters = [node for node in reads if node not in constants]
        own: dict[Node, int] = {}
        for place, node in enumerate(parameters):
            proto = self.add(computation, "parameter", f"part_{number}_input.{place}", node.shape, [])
            proto.parameter_number = place
            own[node] = proto.id
        for node in (*constants, *nodes):
            proto = computation.instructions.add()
            proto.CopyFrom(node.proto)
            proto.id = own[node] = next_id(computation)
            del proto.operand_ids[:]
            proto.operand_ids.extend(own[operand] for operand in node.operands)
            del proto.control_predecessor_ids[:]
            # Constants, and nodes computed from them, may be in both fusions; the anchor op keeps its name.
            if number or node in constants:
                proto.name = f"{proto.name}.part_{number}"
        computation.root_id = own[root]
        fusion = self.add(self.entry, "fusion", f"part_{number}", root.shape, [self.ids[n] for n in parameters])
        fusion.fusion_kind, fusion.backend_config = kind, config
        fusion.called_computation_ids.append(computation.id)
        self.ids[root] = fusion.id
        self._fused.append(computation)

    @staticmethod
    def add(
        computation: ComputationProto, opcode: str, name: str, shape: Shape, operands: list[int]
    ) -> InstructionProto:
        """Add an instruction."""
        proto = computation.instructions.add(opcode=opcode, name=name)
        proto.id = next_id(computation)
        proto.shape.CopyFrom(shape.to_proto())
        proto.operand_ids.extend(operands)
        return proto


def next_id(computation: ComputationProto) -> int:
    """The id of the latest instruction."""
    return (computation.id << 32) + len(computation.instructions)
