"""A match's region cut out of its module: what XLA runs for it, as a module of its own, and its digest.

XLA has fused already, and a fusion that holds a part of a match may hold other things too. So the region is
made of whole top-level instructions: those that hold anything of the match, and those that only bring an
operand into the form that the match looks past. Stock XLA runs exactly these; with the kernel, the custom-call
and the rest of these fusions run instead. Both have the same inputs and results, so their times and their
values can be compared.

Where one of these fusions holds another anchor as well (XLA's library fusions hold up to seven convolutions), the
other one would drown the difference, and it is decided on its own anyway: then the region is the match's part
of the fusion alone (enclosing_fusion_slice.py). So it is where the match reads a value that only another kernel call
puts into memory, such as a residual. A library call is cut out by library_call_slice.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.autotune.extract.digest import Digests, operands
from hlo_dispatch.autotune.extract.enclosing_fusion_slice import EnclosingFusionSlice
from hlo_dispatch.autotune.extract.extracted_module import (
    FROZEN,
    ExtractedModule,
    LoopContext,
    called_by,
    is_small_constant,
    parsed_module,
    set_signature,
)
from hlo_dispatch.autotune.extract.library_call_slice import LibraryCallSlice
from hlo_dispatch.autotune.extract.operand_ops import is_made_of_constants, operand_ops_of
from hlo_dispatch.autotune.run.running_time import RunningTimes, running_time
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, ComputationProto, InstructionProto, ModuleProto
from hlo_dispatch.ir.shape import Shape, in_memory_order, shape_of
from hlo_dispatch.match.protocol import CallableMatch, LibraryCall

_MAX_SLOWDOWN_ALONE = 4.0
"""So many times longer than the instructions it is cut from may a region take, as far as its arithmetic says."""
_REDUCTIONS = frozenset(("reduce", "reduce-window"))


class RegionExtractor:
    """Cuts regions out of one flat graph."""

    def __init__(self, graph: FlatGraph, digests: Digests, executions: float = 1.0) -> None:
        """Cuts out of this graph, which one run of its program runs so often."""
        self._graph, self._digests, self._executions = graph, digests, executions
        self._running_times = RunningTimes(graph.module)
        self._users: dict[int, list[int]] = {}
        for identifier, instruction in graph.instruction_of.items():
            for operand in dict.fromkeys(instruction.operand_ids):
                self._users.setdefault(operand, []).append(identifier)
        self._place = {identifier: place for place, identifier in enumerate(graph.instruction_of)}
        self._latest: tuple[CallableMatch, list[int]] | None = None
        """The match that was asked about last, and its instructions."""

    def digest(self, match: CallableMatch, settings: str) -> str:
        """The region's digest; `settings` is whatever else its measurement depends on."""
        if (loop := self._loop(match)) is not None:
            settings = f"{loop} {settings}"
        if (call := match.library_call) is not None:
            return self._library_call_slice(match, call).digest(settings, self._digests)
        tops = self._top_level_ids(match)
        if self._shares_fusion(tops, match):
            return self._fusion_slice(match).digest(settings, self._digests)
        position = {identifier: number for number, identifier in enumerate(tops)}
        hasher = hashlib.sha256(settings.encode())
        for identifier in tops:
            instruction = self._graph.instruction_of[identifier]
            for operand in instruction.operand_ids:
                if operand not in position:
                    position[operand] = len(position)
                    hasher.update(self._digest_of_input(operand))
            hasher.update(self._digests.of_instruction(instruction))
            hasher.update(operands(instruction, position))
        hasher.update(str([position[result] for result in self._results(tops)]).encode())
        anchor = match.node
        producer = anchor.producers[0]
        members = self._graph.members.get(producer, [])
        place = members.index(anchor) if anchor in members else 0
        hasher.update(f"anchor {position[producer]} {place}".encode())
        return hasher.hexdigest()

    def _digest_of_input(self, identifier: int) -> bytes:
        instruction = self._graph.instruction_of[identifier]
        if is_small_constant(instruction):
            return instruction.literal.SerializeToString(deterministic=True)
        return str(shape_of(instruction.shape)).encode() + bytes([self._is_produced(instruction)])

    def is_stock_within(self, seconds: float, match: CallableMatch) -> bool:
        """Whether stock's code for the region is expected to take less than this; not where nobody can say."""
        tops = self._top_level_ids(match) if match.library_call is None else match.node.producers
        instruction_of = self._graph.instruction_of
        # What an instruction costs besides its work a kernel call costs as well.
        return self._running_times.are_within(seconds, [instruction_of[top] for top in tops], instruction_of)

    def extract(self, match: CallableMatch) -> ExtractedModule | Refusal:
        """The region as a module of its own, which takes no longer than its part of the program does."""
        found = self._extract(match)
        return replace(found, loop=self._loop(match)) if isinstance(found, ExtractedModule) else found

    def _extract(self, match: CallableMatch) -> ExtractedModule | Refusal:
        if (call := match.library_call) is not None:
            return self._library_call_slice(match, call).extract()
        tops = self._top_level_ids(match)
        found = (
            self._fusion_slice(match).extract()
            if self._shares_fusion(tops, match)
            else self._extract_whole_instructions(match, tops)
        )
        if isinstance(found, ExtractedModule):
            expected_alone = running_time(parsed_module(found))
            instruction_of = self._graph.instruction_of
            expected_in_program = self._running_times.of([instruction_of[top] for top in tops], instruction_of)
            if (
                expected_alone is not None
                and expected_in_program is not None
                and expected_alone > _MAX_SLOWDOWN_ALONE * expected_in_program
            ):
                name = match.node.name
                sentence = f"alone, the region of %{name} would take {expected_alone / expected_in_program:.0f} times as long as in its program"
                return Refusal("unmeasurable", sentence, name)
        return found

    def _loop(self, match: CallableMatch) -> LoopContext | None:
        """The loop around the region, and which of its results the next iteration reads where an operand lies."""
        if self._executions <= 1:
            return None
        if match.library_call is not None or self._shares_fusion(tops := self._top_level_ids(match), match):
            return LoopContext.of(self._executions)
        return LoopContext.of(self._executions, tuple(self._carried(tops)))

    def _carried(self, tops: Sequence[int]) -> Iterable[tuple[int, int]]:
        """(input, result) for each element of a loop's state that the region reads and writes."""
        instruction_of, next_state = self._graph.instruction_of, self._next_state
        results = self._results(tops)
        inputs = [i for i in self._inputs(tops) if not is_small_constant(i)]
        for number, instruction in enumerate(inputs):
            element = instruction_of[self._peel_bitcasts(instruction.id)]
            if element.opcode == "get-tuple-element" and element.tuple_index < len(next_state):
                of_state = instruction_of[element.operand_ids[0]].opcode == "parameter"
                result = next_state[element.tuple_index]
                if of_state and result in results and self._have_same_buffer_layout(instruction.id, result):
                    yield number, results.index(result)

    @cached_property
    def _next_state(self) -> list[int]:
        """Elements of the tuple that a loop's body returns, by id."""
        root = self._graph.instruction_of[self._graph.computation.root_id]
        return [self._peel_bitcasts(o) for o in root.operand_ids] if root.opcode == "tuple" else []

    def _have_same_buffer_layout(self, one: int, other: int) -> bool:
        shapes = (shape_of(self._graph.instruction_of[identifier].shape) for identifier in (one, other))
        return len({in_memory_order(shape) for shape in shapes}) == 1

    def _peel_bitcasts(self, identifier: int) -> int:
        instruction = self._graph.instruction_of[identifier]
        while instruction.opcode == "bitcast":
            instruction = self._graph.instruction_of[instruction.operand_ids[0]]
        return instruction.id

    def _inputs(self, tops: Sequence[int]) -> list[InstructionProto]:
        """What the region's instructions read from outside of it."""
        inside, instruction_of = set(tops), self._graph.instruction_of
        outside = dict.fromkeys(o for t in tops for o in instruction_of[t].operand_ids if o not in inside)
        return [instruction_of[identifier] for identifier in outside]

    def _extract_whole_instructions(self, match: CallableMatch, tops: list[int]) -> ExtractedModule | Refusal:
        """Top-level instructions as they are."""
        instructions = [self._graph.instruction_of[identifier] for identifier in tops]
        inside = set(tops)
        inputs = self._inputs(tops)
        results = self._results(tops)
        for instruction in (*inputs, *(self._graph.instruction_of[result] for result in results)):
            shape = shape_of(instruction.shape)
            if not shape.is_array or shape.is_dynamic or shape.elements == 0:
                return Refusal("unmeasurable", f"%{instruction.name} is {shape}", instruction.name)
        return _RegionWriter(self._graph, instructions, inputs, results).write(
            match.node.name,
            [self._is_produced(instruction) for instruction in inputs if not is_small_constant(instruction)],
            [self._is_consumed(result, inside) for result in results],
        )

    def shares_fusion(self, match: CallableMatch) -> bool:
        """Whether the region shares its fusions with another anchor, or reads what another call computes."""
        return match.library_call is None and self._shares_fusion(self._top_level_ids(match), match)

    def _shares_fusion(self, tops: Sequence[int], match: CallableMatch) -> bool:
        """Whether the region holds another anchor, or reads what only another kernel call puts into memory."""
        covered, members = set(match.covered), self._graph.members
        if self._graph.instruction_of[match.node.producers[0]].opcode != "fusion":
            return False
        # Two products and all between them are several fusions: no single one's part is the region.
        if sum(node.opcode in ANCHORS for node in covered) > 1:
            return False
        hidden = [node for node in _nodes_of_module(match.reads) if node.top is None]
        if any(not self._is_fused_reduction(node, match) and not is_made_of_constants(node) for node in hidden):
            return True
        return any(n.opcode in ANCHORS and n not in covered for top in tops for n in members.get(top, ()))

    def reads_a_reduction(self, match: CallableMatch) -> bool:
        """Whether XLA has fused the anchor with a reduction that it reads: such fusions were seen to be wrong."""
        if match.library_call is not None:
            return False
        return any(self._is_fused_reduction(node, match) for node in _nodes_of_module(match.reads))

    def _is_fused_reduction(self, node: Node, match: CallableMatch) -> bool:
        """Whether the anchor's own fusion computes `node` by a reduction: the kernel reads what its rest makes."""
        producer, pending = match.node.producers[0], [node]
        while pending:
            value = pending.pop()
            if value.top is None and producer in value.producers:
                if value.opcode in _REDUCTIONS:
                    return True
                if value.opcode not in ANCHORS:
                    pending += value.operands
        return False

    def _library_call_slice(self, match: CallableMatch, call: LibraryCall) -> LibraryCallSlice:
        return LibraryCallSlice(
            self._graph, match, call, {node for node in match.reads if self._is_produced_node(node)}
        )

    def _fusion_slice(self, match: CallableMatch) -> EnclosingFusionSlice:
        ops = operand_ops_of(set(match.covered), set(match.reads))
        nodes = sorted({*match.covered, *ops}, key=lambda node: node.index)
        produced = {node for node in nodes for node in node.operands if self._is_produced_node(node)}
        return EnclosingFusionSlice(self._graph, match, nodes, produced)

    def _is_produced_node(self, node: Node) -> bool:
        if node.is_static:
            return False
        return node.top is None or self._is_produced(self._graph.instruction_of[node.top])

    def _top_level_ids(self, match: CallableMatch) -> list[int]:
        """Ids of the region's top-level instructions, in the computation's order."""
        if self._latest is None or self._latest[0] is not match:
            self._latest = match, self._find_top_level_ids(match)
        return self._latest[1]

    def _find_top_level_ids(self, match: CallableMatch) -> list[int]:
        covered, reads = set(match.covered), set(match.reads)
        found = {producer for node in match.covered for producer in node.producers}
        for node in (*operand_ops_of(covered, reads), *(n for n in _nodes_of_module(reads) if n.top is None)):
            if node.top is not None:
                found.add(node.top)
            elif found.isdisjoint(node.producers):
                found.add(node.producers[0])
        # A call with several results is its parts.
        parts = {user for top in found if self._is_tuple(top) for user in self._users.get(top, ())}
        found |= {part for part in parts if self._graph.instruction_of[part].opcode == "get-tuple-element"}
        return sorted(found, key=self._place.__getitem__)

    def _is_tuple(self, identifier: int) -> bool:
        return self._graph.instruction_of[identifier].shape.element_type == ELEMENT_TYPE_NUMBERS["tuple"]

    def _results(self, tops: Sequence[int]) -> list[int]:
        """Those of `tops` whose values are needed elsewhere."""
        inside, root = set(tops), self._graph.computation.root_id
        return [t for t in tops if t == root or any(user not in inside for user in self._users.get(t, ()))]

    def _is_produced(self, instruction: InstructionProto) -> bool:
        if self._graph.value_of[instruction.id].is_static:
            return False
        while instruction.opcode in ("bitcast", "get-tuple-element", "copy"):
            instruction = self._graph.instruction_of[instruction.operand_ids[0]]
        return instruction.opcode not in ("parameter", "constant")

    def _is_consumed(self, result: int, inside: set[int]) -> bool:
        users = (self._graph.instruction_of[user] for user in self._users.get(result, ()) if user not in inside)
        return any(user.opcode not in ("tuple", "copy") for user in users)


def _nodes_of_module(nodes: Iterable[Node]) -> list[Node]:
    """Those that the module has: operands that are made for a match have no place in it."""
    return [node for node in nodes if node.producers or node.top is not None]


class _RegionWriter:
    """Writes one extracted module."""

    def __init__(
        self, graph: FlatGraph, instructions: list[InstructionProto], inputs: list[InstructionProto], results: list[int]
    ) -> None:
        self._graph, self._module = graph, graph.module
        self._instructions, self._inputs, self._results = instructions, inputs, results
        self._identifier = max(self._module.computations) + 1
        self._entry = ComputationProto(
            id=self._identifier, name="region", execution_thread=graph.computation.execution_thread
        )
        self._ids: dict[int, int] = {}
        """Id in the module → id in the extracted one."""
        self._count = 0

    def write(self, anchor: str, produced: list[bool], consumed: list[bool]) -> ExtractedModule:
        shapes: list[Shape] = []
        for instruction in self._inputs:
            if is_small_constant(instruction):
                self._copy(instruction)
            else:
                shapes.append(self._parameter(instruction, len(shapes)))
        for instruction in self._instructions:
            self._copy(instruction)
        root, results = self._root()
        self._entry.root_id = root.id
        module = ModuleProto(name="region", entry_computation_name="region", entry_computation_id=self._identifier)
        for computation in called_by(self._module, self._instructions):
            module.computations.add().CopyFrom(computation)
        set_signature(self._entry, shapes, root.shape)
        module.computations.add().CopyFrom(self._entry)
        for computation in module.computations:
            for instruction in computation.instructions:
                # It refers to tables of the module that are not copied.
                instruction.ClearField("metadata")
        module.host_program_shape.CopyFrom(self._entry.program_shape)
        return ExtractedModule(
            module.SerializeToString(), anchor, tuple(shapes), tuple(results), tuple(produced), tuple(consumed)
        )

    def _parameter(self, instruction: InstructionProto, number: int) -> Shape:
        """A parameter with the same bytes: row-major, and renamed where the region wants it otherwise."""
        shape = shape_of(instruction.shape)
        plain = in_memory_order(shape)
        parameter = self._new("parameter", f"{self._kind(instruction)}.{number}", plain)
        parameter.parameter_number = number
        self._ids[instruction.id] = parameter.id
        if plain != shape:
            renamed = self._new("bitcast", f"region_input_as_given.{number}", shape)
            renamed.operand_ids.append(parameter.id)
            self._ids[instruction.id] = renamed.id
        return plain

    def _kind(self, instruction: InstructionProto) -> str:
        return FROZEN if self._graph.value_of[instruction.id].is_static else "region_input"

    def _copy(self, instruction: InstructionProto) -> None:
        copy = self._entry.instructions.add()
        copy.CopyFrom(instruction)
        copy.id = self._ids[instruction.id] = self._fresh_id()
        del copy.operand_ids[:]
        copy.operand_ids.extend(self._ids[operand] for operand in instruction.operand_ids)
        del copy.control_predecessor_ids[:]

    def _root(self) -> tuple[InstructionProto, list[Shape]]:
        parts: list[int] = []
        shapes: list[Shape] = []
        for number, result in enumerate(self._results):
            shape = shape_of(next(i.shape for i in self._instructions if i.id == result))
            plain = in_memory_order(shape)
            part = self._ids[result]
            if plain != shape:
                renamed = self._new("bitcast", f"region_result.{number}", plain)
                renamed.operand_ids.append(part)
                part = renamed.id
            parts.append(part)
            shapes.append(plain)
        if len(parts) == 1:
            return next(i for i in self._entry.instructions if i.id == parts[0]), shapes
        root = self._entry.instructions.add(opcode="tuple", name="region_results", id=self._fresh_id())
        root.operand_ids.extend(parts)
        root.shape.element_type = 13
        root.shape.tuple_shapes.extend(shape.to_proto() for shape in shapes)
        return root, shapes

    def _new(self, opcode: str, name: str, shape: Shape) -> InstructionProto:
        proto = self._entry.instructions.add(opcode=opcode, name=name, id=self._fresh_id())
        proto.shape.CopyFrom(shape.to_proto())
        return proto

    def _fresh_id(self) -> int:
        self._count += 1
        return (self._identifier << 32) + self._count
