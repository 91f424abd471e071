"""Region extraction: a match's instructions as a module of their own, and the region's digest.

XLA has fused already, and a fusion with instructions of a match may contain others. So a region consists of whole
top-level instructions: those with instructions of the match, and operand ops. Stock XLA runs exactly these; with the
kernel, the custom-call and the rest of these fusions run instead. Both have the same inputs and results, so times and
values can be compared.

Where a region shares a fusion with another anchor op (XLA's library fusions contain up to seven convolutions), the
other one would dominate the times, and it is decided separately anyway: the region is then the enclosing fusion slice
(enclosing_fusion_slice.py). The same holds where the match reads a value that only another kernel call materializes,
such as a residual. library_call_slice.py extracts library calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_RENAMES, peel_instruction
from hlo_dispatch.autotune.extract.digest import Digests, InstructionIndex
from hlo_dispatch.autotune.extract.enclosing_fusion_slice import EnclosingFusionSlice
from hlo_dispatch.autotune.extract.extracted_module import (
    FROZEN,
    ExtractedModule,
    LoopContext,
    is_small_constant,
    set_signature,
)
from hlo_dispatch.autotune.extract.library_call_slice import LibraryCallSlice
from hlo_dispatch.autotune.extract.operand_ops import is_constant_expression, operand_ops_of
from hlo_dispatch.autotune.extract.writer import ExtractedWriter
from hlo_dispatch.autotune.run.running_time import DENSE_PER_NANOSECOND, RunningTimes, running_time
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape, in_memory_order, shape_of
from hlo_dispatch.match.match import LibraryCall, Match

_MAX_SLOWDOWN_ALONE = 4.0
"""Maximum ratio of a region's estimated time alone to that of its instructions in the program."""
_PEELED = PEEL_RENAMES | {"copy"}
"""What does not produce a value."""
_REDUCTIONS = frozenset(("reduce", "reduce-window"))


class RegionExtractor:
    """Extractor of the regions of one flat graph."""

    def __init__(
        self, graph: FlatGraph, digests: Digests, executions: float = 1.0, times: RunningTimes | None = None
    ) -> None:
        """
        Args:
            executions: of the computation in one run of the program.
            times: estimates of the module, which extractors of its computations share.
        """
        self._graph, self._digests, self._executions = graph, digests, executions
        self._running_times = times or RunningTimes(graph.module, digest_of=digests.of_computation)
        self._inputs_digests: dict[int, bytes] = {}
        self._latest: tuple[Match, list[int], bool] | None = None
        """The latest match, its top-level instructions, and whether it shares fusions with other ones."""

    @cached_property
    def _index(self) -> InstructionIndex:
        return self._digests.index(self._graph.computation)

    @cached_property
    def _place(self) -> dict[int, int]:
        """Id of an instruction → its place in the computation."""
        return {identifier: place for place, identifier in enumerate(self._graph.instruction_of)}

    def digest(self, match: Match, settings: str) -> str:
        """The region's digest, the key of its measurement; `settings`: what else the measurement depends on."""
        tops, shares_fusion = self._extent(match) if match.library_call is None else ([], False)
        if match.library_call is not None or shares_fusion:
            return self._slice(match).digest(self._in_loop(settings), self._digests)
        position = {identifier: number for number, identifier in enumerate(tops)}
        inputs, operands_of, _ = self._index
        read, outside = [b""], list[int]()
        for identifier in tops:
            operands = operands_of[identifier]
            for operand in operands:
                if operand not in position:
                    position[operand] = len(position)
                    outside.append(operand)
                    read.append(self._inputs_digests.get(operand) or self._digest_of_input(operand))
            read.append(inputs[identifier])
            read.append(str([position[operand] for operand in operands]).encode())
        results = self._results(tops)
        read.append(str([position[result] for result in results]).encode())
        read[0] = self._in_loop(settings, outside, results).encode()
        anchor = match.node
        producer = anchor.producers[0]
        members = self._graph.members.get(producer, ())
        place = members.index(anchor) if anchor in members else 0
        read.append(f"anchor {position[producer]} {place}".encode())
        return hashlib.sha256(b"".join(read)).hexdigest()

    def _in_loop(self, settings: str, inputs: Sequence[int] = (), results: Sequence[int] = ()) -> str:
        """The settings of a region with these inputs and results, and the loop around it."""
        if self._executions <= 1:
            return settings
        return f"{_loop_text(self._executions, self._carried(inputs, results))} {settings}"

    def _slice(self, match: Match) -> LibraryCallSlice | EnclosingFusionSlice:
        """The region of a library call, or of a match that shares fusions."""
        call = match.library_call
        return self._fusion_slice(match) if call is None else self._library_call_slice(match, call)

    def _digest_of_input(self, identifier: int) -> bytes:
        instruction = self._graph.instruction_of[identifier]
        if is_small_constant(instruction):
            found = instruction.literal.SerializeToString(deterministic=True)
        else:
            found = str(self._graph.value_of[identifier].shape).encode() + bytes([self._is_produced(instruction)])
        self._inputs_digests[identifier] = found
        return found

    def is_stock_within(self, seconds: float, match: Match) -> bool:
        """Whether stock's code for the region is estimated to take less than this; False where it is unknown."""
        # An instruction's overhead does not count: a kernel call has it as well.
        return self._running_times.are_within(seconds, self._replaced(match), self._graph.instruction_of)

    def stock_seconds(self, match: Match) -> float:
        """Estimated time of stock's code for the region; by its arithmetic where that is unknown."""
        known = self._running_times.of(self._replaced(match), self._graph.instruction_of)
        return known if known is not None else match.multiply_adds / DENSE_PER_NANOSECOND * 1e-9

    def _replaced(self, match: Match) -> list[InstructionProto]:
        """The instructions of stock's code for the region."""
        tops = self._top_level_ids(match) if match.library_call is None else match.node.producers
        return [self._graph.instruction_of[top] for top in tops]

    def extract(self, match: Match) -> ExtractedModule | Refusal:
        """Extract the region; refused where alone it would take much longer than in its program."""
        found = self._extract(match)
        return replace(found, loop=self._loop(match)) if isinstance(found, ExtractedModule) else found

    def _extract(self, match: Match) -> ExtractedModule | Refusal:
        if match.library_call is not None:
            return self._slice(match).extract()
        tops = self._top_level_ids(match)
        found = (
            self._slice(match).extract() if self.shares_fusion(match) else self._extract_whole_instructions(match, tops)
        )
        if isinstance(found, ExtractedModule):
            expected_alone = running_time(found.module)
            instruction_of = self._graph.instruction_of
            expected_in_program = self._running_times.of([instruction_of[top] for top in tops], instruction_of)
            if (
                expected_alone is not None
                and expected_in_program is not None
                and expected_alone > _MAX_SLOWDOWN_ALONE * expected_in_program
            ):
                name = match.node.name
                ratio = expected_alone / expected_in_program
                sentence = f"alone, the region of %{name} would take {ratio:.0f} times as long as in its program"
                return Refusal("unmeasurable", sentence, name)
        return found

    def _loop(self, match: Match) -> LoopContext | None:
        """The loop around the region and the values that it carries; None: there is no loop."""
        if self._executions <= 1:
            return None
        if match.library_call is not None or self.shares_fusion(match):
            return LoopContext.of(self._executions)
        tops = self._top_level_ids(match)
        return LoopContext.of(self._executions, self._carried([*self._input_ids(tops)], self._results(tops)))

    def _carried(self, inputs: Sequence[int], results: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """(input, result) for each loop-carried value that the region reads and writes; most regions carry nothing."""
        elements, next_state, instruction_of = self._state_elements, self._next_state, self._graph.instruction_of
        found: list[tuple[int, int]] = []
        for place, identifier in enumerate(inputs):
            element = elements.get(identifier)
            if element is not None and element < len(next_state):
                result = next_state[element]
                if result in results and self._have_same_buffer_layout(identifier, result):
                    number = sum([not is_small_constant(instruction_of[earlier]) for earlier in inputs[:place]])
                    found.append((number, results.index(result)))
        return tuple(found)

    @cached_property
    def _state_elements(self) -> dict[int, int]:
        """Id of an element of a parameter, or of a bitcast of one → its index in the parameter."""
        found: dict[int, int] = {}
        for identifier, instruction in self._graph.instruction_of.items():
            opcode = instruction.opcode
            if opcode == "get-tuple-element":
                if self._graph.instruction_of[instruction.operand_ids[0]].opcode == "parameter":
                    found[identifier] = instruction.tuple_index
            elif opcode == "bitcast" and (element := found.get(instruction.operand_ids[0])) is not None:
                found[identifier] = element
        return found

    @cached_property
    def _next_state(self) -> list[int]:
        """Ids of the elements of the tuple that the loop body returns."""
        root = self._graph.instruction_of[self._graph.computation.root_id]
        return [self._peel_bitcasts(o) for o in root.operand_ids[:]] if root.opcode == "tuple" else []

    def _have_same_buffer_layout(self, one: int, other: int) -> bool:
        value_of = self._graph.value_of
        return in_memory_order(value_of[one].shape) == in_memory_order(value_of[other].shape)

    def _peel_bitcasts(self, identifier: int) -> int:
        instruction = self._graph.instruction_of[identifier]
        while instruction.opcode == "bitcast":
            instruction = self._graph.instruction_of[instruction.operand_ids[0]]
        return instruction.id

    def _inputs(self, tops: Sequence[int]) -> list[InstructionProto]:
        """Operands of the region's instructions from outside of it."""
        return [self._graph.instruction_of[identifier] for identifier in self._input_ids(tops)]

    def _input_ids(self, tops: Sequence[int]) -> Iterable[int]:
        inside, operands = set(tops), self._index.operands
        return dict.fromkeys([operand for top in tops for operand in operands[top] if operand not in inside])

    def _extract_whole_instructions(self, match: Match, tops: list[int]) -> ExtractedModule | Refusal:
        """Extract whole top-level instructions."""
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

    def shares_fusion(self, match: Match) -> bool:
        """Whether the region shares fusions with another anchor op, or reads a value that another call materializes."""
        return match.library_call is None and self._extent(match)[1]

    def _shares_fusion(self, tops: Sequence[int], match: Match) -> bool:
        """Whether another anchor op is inside, or the match reads a value that another kernel call materializes."""
        if self._graph.instruction_of[match.node.producers[0]].opcode != "fusion":
            return False
        covered, members = set(match.covered), self._graph.members
        # Two products with ops between them span several fusions: the region is no slice of a single one.
        if len([node for node in covered if node.opcode in ANCHORS]) > 1:
            return False
        hidden = [node for node in _nodes_of_module(match.reads) if node.top_level_id is None]
        if any(not self._is_fused_reduction(node, match) and not is_constant_expression(node) for node in hidden):
            return True
        return any([n.opcode in ANCHORS and n not in covered for top in tops for n in members.get(top, ())])

    def reads_a_reduction(self, match: Match) -> bool:
        """Whether XLA has fused the anchor op with a reduction that it reads: some such fusions are miscompiled."""
        if match.library_call is not None:
            return False
        return any(self._is_fused_reduction(node, match) for node in _nodes_of_module(match.reads))

    def _is_fused_reduction(self, node: Node, match: Match) -> bool:
        """Whether the anchor op's fusion computes `node` by a reduction; the kernel reads what its rest computes."""
        producer, pending = match.node.producers[0], [node]
        while pending:
            value = pending.pop()
            if value.top_level_id is None and producer in value.producers:
                if value.opcode in _REDUCTIONS:
                    return True
                if value.opcode not in ANCHORS:
                    pending += value.operands
        return False

    def _library_call_slice(self, match: Match, call: LibraryCall) -> LibraryCallSlice:
        return LibraryCallSlice(
            self._graph, match, call, {node for node in match.reads if self._is_produced_node(node)}
        )

    def _fusion_slice(self, match: Match) -> EnclosingFusionSlice:
        ops = operand_ops_of(set(match.covered), set(match.reads))
        nodes = sorted({*match.covered, *ops}, key=lambda node: node.index)
        produced = {node for node in nodes for node in node.operands if self._is_produced_node(node)}
        return EnclosingFusionSlice(self._graph, match, nodes, produced)

    def _is_produced_node(self, node: Node) -> bool:
        if node in self._graph.static:
            return False
        return node.top_level_id is None or self._is_produced(self._graph.instruction_of[node.top_level_id])

    def _top_level_ids(self, match: Match) -> list[int]:
        """Ids of the region's top-level instructions, in the computation's order."""
        return self._extent(match)[0]

    def _extent(self, match: Match) -> tuple[list[int], bool]:
        """Ids of the region's top-level instructions, and whether it shares fusions."""
        if self._latest is None or self._latest[0] is not match:
            tops = self._find_top_level_ids(match)
            self._latest = match, tops, self._shares_fusion(tops, match)
        return self._latest[1:]

    def _find_top_level_ids(self, match: Match) -> list[int]:
        covered, reads = set(match.covered), set(match.reads)
        found = {producer for node in match.covered for producer in node.producers}
        for node in (*operand_ops_of(covered, reads), *(n for n in _nodes_of_module(reads) if n.top_level_id is None)):
            if node.top_level_id is not None:
                found.add(node.top_level_id)
            elif found.isdisjoint(node.producers):
                found.add(node.producers[0])
        # A call with several results includes its get-tuple-elements.
        value_of = self._graph.value_of
        for top in [top for top in found if value_of[top].shape.element_type == "tuple"]:
            users = self._index.users.get(top, ())
            found.update(user for user in users if self._graph.instruction_of[user].opcode == "get-tuple-element")
        return sorted(found, key=self._place.__getitem__) if len(found) > 1 else [*found]

    def _results(self, tops: Sequence[int]) -> list[int]:
        """Those of `tops` with users outside of the region."""
        inside, root, users = set(tops), self._graph.computation.root_id, self._index.users
        return [t for t in tops if t == root or not inside.issuperset(users.get(t, ()))]

    def _is_produced(self, instruction: InstructionProto) -> bool:
        if self._graph.value_of[instruction.id] in self._graph.static:
            return False
        source = peel_instruction(instruction, _PEELED, self._graph.instruction_of)
        return source.opcode not in ("parameter", "constant")

    def _is_consumed(self, result: int, inside: set[int]) -> bool:
        users = (self._graph.instruction_of[user] for user in self._index.users.get(result, ()) if user not in inside)
        return any(user.opcode not in ("tuple", "copy") for user in users)


@lru_cache(maxsize=4096)
def _loop_text(executions: float, carried: tuple[tuple[int, int], ...]) -> str:
    """What digests say of a loop."""
    return str(LoopContext.of(executions, carried))


def _nodes_of_module(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that exist in the module, without operands that were created for a match."""
    return [node for node in nodes if node.producers or node.top_level_id is not None]


class _RegionWriter(ExtractedWriter):
    """Writer of an extracted module of whole instructions."""

    def __init__(
        self, graph: FlatGraph, instructions: list[InstructionProto], inputs: list[InstructionProto], results: list[int]
    ) -> None:
        super().__init__(graph)
        self._instructions, self._inputs, self._results = instructions, inputs, results
        self._ids: dict[int, int] = {}
        """Id in the module → id in the extracted one."""

    def write(self, anchor: str, produced: list[bool], consumed: list[bool]) -> ExtractedModule:
        shapes: list[Shape] = []
        for instruction in self._inputs:
            if is_small_constant(instruction):
                self._clone(instruction)
            else:
                kind = FROZEN if self.graph.value_of[instruction.id] in self.graph.static else "region_input"
                self._ids[instruction.id], plain = self.parameter(len(shapes), shape_of(instruction.shape), kind)
                shapes.append(plain)
        for instruction in self._instructions:
            self._clone(instruction)
        shape_of_result = {i.id: shape_of(i.shape) for i in self._instructions}
        root, results = self.results([(self._ids[result], shape_of_result[result]) for result in self._results])
        set_signature(self.entry, shapes, root.shape)
        module = self.module(self._instructions)
        return ExtractedModule(module, anchor, tuple(shapes), tuple(results), tuple(produced), tuple(consumed))

    def _clone(self, instruction: InstructionProto) -> None:
        operands = [self._ids[operand] for operand in instruction.operand_ids[:]]
        self._ids[instruction.id] = self.builder.clone(instruction, operands).id
