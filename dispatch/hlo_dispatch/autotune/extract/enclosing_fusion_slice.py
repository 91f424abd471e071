"""Enclosing fusion slice: the instructions of a match inside fusions that it shares with others, as fusions of its own.

The library fusion around the anchor op keeps its kind and the match's instructions. Top-level operand ops stay in front
of it; the match's instructions in other fusions follow in one loop fusion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node
from hlo_dispatch.analysis.loop_fusion import is_loop_fusible
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule, is_small_constant, set_signature
from hlo_dispatch.autotune.extract.writer import ExtractedWriter
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.ir.task_partitions import loop_backend_config
from hlo_dispatch.match.match import Match
from hlo_dispatch.process.machine import this_machine


class EnclosingFusionSlice:
    """The nodes of a region that shares fusions, divided into operand ops, library fusion and loop fusion."""

    def __init__(self, graph: FlatGraph, match: Match, nodes: list[Node], produced: set[Node]) -> None:
        self._graph, self._match, self._produced = graph, match, produced
        self._enclosing_fusion = graph.instruction_of[match.node.producers[0]]
        members = set(graph.members.get(self._enclosing_fusion.id, (match.node,)))
        known, dependent = set(nodes), self._dependent(nodes)
        self.library = [node for node in nodes if node in members]
        self.loop = _with_ancestors([n for n in dependent if n not in members], known - dependent)
        self.operand_instructions = self._operand_instructions(
            [n for n in nodes if n in set(self.library) & dependent], known - dependent
        )
        needed = _with_ancestors([n for n in self.library if n in dependent], set(self.library) - dependent)
        self.library = needed

    def _dependent(self, nodes: Sequence[Node]) -> set[Node]:
        """The anchor op and the nodes that depend on it."""
        found = {self._match.node}
        for node in nodes:
            if any(operand in found for operand in node.operands):
                found.add(node)
        return found

    def _operand_instructions(self, nodes: Iterable[Node], candidates: set[Node]) -> list[int]:
        """Ids of the top-level operand ops of `nodes`."""
        found: set[int] = set()
        inside, pending = set(self.library), list(nodes)
        seen = set(pending)
        while pending:
            for operand in pending.pop().operands:
                if operand not in candidates or operand in seen:
                    continue
                seen.add(operand)
                pending.append(operand)
                if operand not in inside and operand.top_level_id is not None:
                    found.add(operand.top_level_id)
        return [identifier for identifier in self._graph.instruction_of if identifier in found]

    def digest(self, settings: str, digests: Digests) -> str:
        """The region's digest (`RegionExtractor.digest`)."""
        hasher = hashlib.sha256(
            f"part {settings} {self._enclosing_fusion.fusion_kind} {self._enclosing_fusion.backend_config!r}".encode()
        )
        position: dict[Node, int] = {}

        def place(node: Node) -> int:
            if node not in position:
                position[node] = len(position)
                is_constant = is_small_constant(node.proto)
                literal = node.proto.literal.SerializeToString(deterministic=True) if is_constant else b""
                hasher.update(f"{node.shape} {node in self._produced}".encode() + literal)
            return position[node]

        for identifier in self.operand_instructions:
            instruction = self._graph.instruction_of[identifier]
            hasher.update(f"{[place(self._graph.value_of[o]) for o in instruction.operand_ids]}".encode())
            hasher.update(digests.of_instruction(instruction))
            position[self._graph.value_of[identifier]] = len(position)
        for nodes in (self.library, self.loop):
            for node in nodes:
                hasher.update(f"{[place(operand) for operand in node.operands]}".encode())
                hasher.update(digests.of_instruction(node.proto))
                position[node] = len(position)
            hasher.update(b"|")
        return hasher.hexdigest()

    def extract(self) -> ExtractedModule | Refusal:
        """Extract the slice as a module."""
        library = set(self.library)
        crossing = {o for node in self.loop for o in node.operands if o in library} - set(self.loop)
        back = any(operand in set(self.loop) - library for node in self.library for operand in node.operands)
        result = next(iter(crossing)) if self.loop and crossing else self._match.output
        if len(crossing) > 1 or back or result not in library or self._enclosing_fusion.opcode != "fusion":
            name = self._match.node.name
            return Refusal("unmeasurable", f"%{name} cannot be separated from its neighbours", name)
        costly = next((node for node in self.loop if not is_loop_fusible(node.proto.opcode)), None)
        if costly is not None:
            return Refusal("unmeasurable", f"%{costly.name} would be computed again and again in a loop", costly.name)
        return _FusionSliceWriter(self._graph, self, self._enclosing_fusion, self._produced).write(self._match, result)


def _with_ancestors(nodes: Iterable[Node], among: set[Node]) -> list[Node]:
    """`nodes` and their ancestors in `among`, operands first."""
    found, pending = dict.fromkeys(nodes), list(nodes)
    while pending:
        for operand in pending.pop().operands:
            if operand in among and operand not in found:
                found[operand] = None
                pending.append(operand)
    return sorted(found, key=lambda node: node.index)


class _FusionSliceWriter(ExtractedWriter):
    """Writer of an enclosing fusion slice."""

    def __init__(
        self, graph: FlatGraph, part: EnclosingFusionSlice, producer: InstructionProto, produced: set[Node]
    ) -> None:
        super().__init__(graph)
        self._fusion_slice, self._enclosing_fusion, self._produced = part, producer, produced
        self._inputs: list[Node] = []

    def write(self, match: Match, result: Node) -> ExtractedModule | Refusal:
        instruction_of, value_of = self.graph.instruction_of, self.graph.value_of
        instructions = [instruction_of[identifier] for identifier in self._fusion_slice.operand_instructions]
        written = {value_of[identifier] for identifier in self._fusion_slice.operand_instructions} | {result}
        reads = [value_of[o] for i in instructions for o in i.operand_ids[:]]
        for nodes in (self._fusion_slice.library, self._fusion_slice.loop):
            inside = set(nodes)
            reads += [o for node in nodes for o in node.operands if o not in inside]
        self._inputs = [n for n in dict.fromkeys(reads) if n not in written and not is_small_constant(n.proto)]
        for node in self._inputs:
            if (
                (node.opcode == INSERTED_COPY and node.top_level_id is None)
                or not node.shape.is_array
                or not node.shape.elements
            ):
                return Refusal("unmeasurable", f"%{node.name} is {node.shape}", node.name)
        shapes = [self.node_parameter(node, number) for number, node in enumerate(self._inputs)]
        for instruction in instructions:
            self.copy(instruction)
        self.fusion(
            self._fusion_slice.library,
            result,
            self._enclosing_fusion.fusion_kind,
            self._enclosing_fusion.backend_config,
        )
        if self._fusion_slice.loop:
            config = loop_backend_config(match.output.shape, this_machine().threads)
            self.fusion(self._fusion_slice.loop, match.output, "kLoop", config)
        return self._extracted(match, shapes, instructions)

    def _extracted(self, match: Match, shapes: list[Shape], instructions: list[InstructionProto]) -> ExtractedModule:
        output = match.output
        root, results = self.results([(self.ids[output], output.shape)])
        set_signature(self.entry, shapes, root.shape)
        nodes = [node.proto for node in (*self._fusion_slice.library, *self._fusion_slice.loop)]
        return ExtractedModule(
            module=self.module([*instructions, *nodes]),
            anchor=match.node.name,
            inputs=tuple(shapes),
            results=tuple(results),
            produced=tuple(node in self._produced for node in self._inputs),
            consumed=(bool(output.users),),
        )
