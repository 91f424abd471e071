"""Library call slice: a LAPACK call and the layout and copy ops around it, as a region.

It begins at the values that a kernel would read and ends at those it would write. Other instructions that XLA has fused
with the copies (a Gaussian process's covariance, for example) are not part of it, so that its inputs can satisfy the
routine's preconditions: random inputs of a covariance do not give a positive definite matrix.
"""

from __future__ import annotations

import hashlib

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.loop_fusion import is_loop_fusible
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule, set_signature
from hlo_dispatch.autotune.extract.writer import ExtractedWriter
from hlo_dispatch.autotune.run.inputs import LOWER, UPPER
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.ir.task_partitions import loop_backend_config
from hlo_dispatch.match.match import LibraryCall, Match
from hlo_dispatch.match.routines.product import is_half_zeros
from hlo_dispatch.process.machine import this_machine

_MAX_OPS = 64


class LibraryCallSlice:
    """The region of one library call."""

    def __init__(self, graph: FlatGraph, match: Match, call: LibraryCall, produced: set[Node]) -> None:
        """`produced`: the values read that another top-level instruction computes."""
        self.match, self.call = match, call
        self._graph, self._produced = graph, produced
        self._chains = [
            _loop_between(operand, view.node)
            for operand, view in zip(match.node.operands, match.operands.values(), strict=True)
        ]

    def digest(self, settings: str, digests: Digests) -> str:
        """The region's digest (`RegionExtractor.digest`)."""
        match = self.match
        hasher = hashlib.sha256(f"routine {self.call.routine.name} {settings} {self.call.options}".encode())
        hasher.update(digests.of_instruction(self._instruction))
        for chain, view in zip(self._chains, match.operands.values(), strict=True):
            hasher.update(f"{view.node.shape} {self._is_produced(view.node, chain)} {chain is None}".encode())
            for node in chain or ():
                hasher.update(digests.of_instruction(node.proto))
        for value, _ in self.results:
            hasher.update(f"{value.shape} {[str(node.shape) for node in self.result_ops(value)]}".encode())
        return hasher.hexdigest()

    def extract(self) -> ExtractedModule | Refusal:
        """Extract the slice as a module."""
        match, name = self.match, self.match.node.name
        chains = [chain for chain in self._chains if chain is not None]
        if len(chains) < len(self._chains):
            return Refusal("unmeasurable", f"an operand of %{name} is computed from more than one value", name)
        for chain, view in zip(chains, match.operands.values(), strict=True):
            # The call may overwrite its operand, so it must not be a parameter; context ops copy only real numbers.
            if not chain and match.node.opcode == "custom-call" and view.element_type[0] == "c":
                return Refusal("unmeasurable", f"%{name} overwrites a complex operand in place", name)
        return _LibraryCallWriter(self._graph, self).write(chains)

    @property
    def _instruction(self) -> InstructionProto:
        return self._graph.instruction_of[self.match.node.producers[0]]

    def _is_produced(self, node: Node, chain: list[Node] | None) -> bool:
        """Whether the input gets a context op.

        It needs one where the call itself reads it, since the call may overwrite it. It must not have one where the
        same loop also computes it: stock XLA would read it twice.
        """
        return not chain or (node.top_level_id is not None and node in self._produced)

    def produced(self, node: Node) -> bool:
        """Whether a value that is read gets a context op."""
        chains = [
            chain for chain, view in zip(self._chains, self.match.operands.values(), strict=True) if view.node is node
        ]
        return any(self._is_produced(node, chain) for chain in chains)

    @property
    def results(self) -> list[tuple[Node, int]]:
        """(value, number of the call's result) for each value that the region computes."""
        return [(value, number) for number, value in enumerate(self.match.results) if value is not None]

    def result_ops(self, value: Node) -> list[Node]:
        """The layout ops between a result of the call and `value`, operands first."""
        found: list[Node] = []
        while value.opcode != "get-tuple-element" and value is not self.match.node:
            found.append(value)
            value = value.operands[0]
        return found[::-1]


def _loop_between(operand: Node, source: Node) -> list[Node] | None:
    """The nodes of one loop that computes `operand` from `source` alone, operands first; None: there is none."""
    if operand is source:
        return []
    found, pending = {operand}, [operand]
    while pending:
        node = pending.pop()
        if (not node.operands and node.opcode not in ("constant", "iota")) or not is_loop_fusible(node.proto.opcode):
            return None
        for value in node.operands:
            if value is not source and value not in found:
                found.add(value)
                pending.append(value)
        if len(found) > _MAX_OPS:
            return None
    return sorted(found, key=lambda node: node.index)


class _LibraryCallWriter(ExtractedWriter):
    """Writer of a library call slice."""

    def __init__(self, graph: FlatGraph, part: LibraryCallSlice) -> None:
        super().__init__(graph)
        self._slice, self._match, self._call = part, part.match, part.call

    def write(self, chains: list[list[Node]]) -> ExtractedModule:
        match = self._match
        inputs = list(dict.fromkeys(view.node for view in match.operands.values()))
        shapes = [self.node_parameter(node, number, self._kind(node)) for number, node in enumerate(inputs)]
        for chain in chains:
            self._chain(chain)
        call = self.graph.instruction_of[match.node.producers[0]]
        self.copy(call)
        produced = tuple(self._slice.produced(node) for node in inputs)
        root, results = self.results(self._result_values())
        set_signature(self.entry, shapes, root.shape)
        return ExtractedModule(
            module=self.module([call]),
            anchor=match.node.name,
            inputs=tuple(shapes),
            results=tuple(results),
            produced=produced,
            consumed=tuple(bool(value.users) for value, _ in self._slice.results),
            routine=self._call.routine.name,
            logical=tuple(
                (list(self._call.routine.results)[number], tuple(self._call.destinations[number]))
                for _, number in self._slice.results
            ),
        )

    def _kind(self, node: Node) -> str:
        """Name prefix of the parameter: JAX's triangular factors are lower, in column-major memory upper ones."""
        if not self._call.routine.factors_of or not is_half_zeros(node):
            return "region_input"
        return LOWER if node.shape.minor_to_major[0] == len(node.shape.dimensions) - 1 else UPPER

    def _chain(self, nodes: list[Node]) -> None:
        """Write `nodes`: bitcasts as they are, everything else as one loop fusion."""
        if not nodes or nodes[-1] in self.ids:
            return
        if all(node.opcode == "bitcast" for node in nodes):
            for node in nodes:
                operand = self.ids[node.operands[0]]
                self.ids[node] = self.builder.make("bitcast", node.shape, operand, stem=node.name).id
            return
        self.fusion(nodes, nodes[-1], "kLoop", loop_backend_config(nodes[-1].shape, this_machine().threads))

    def _result_values(self) -> list[tuple[int, Shape]]:
        """Write the layout ops of the results; returns (id, shape) of each."""
        values: list[tuple[int, Shape]] = []
        for value, number in self._slice.results:
            ops = self._slice.result_ops(value)
            first = ops[0].operands[0] if ops else value
            if first is not self._match.node and first not in self.ids:
                call = self.ids[self._match.node]
                self.ids[first] = self.builder.get_tuple_element(call, number, first.shape, first.name).id
            self._chain(ops)
            values.append((self.ids[value], value.shape))
        return values
