"""Module rewriter: rewrites one computation around the instructions that are replaced in it.

An instruction without a replaced operand keeps its bytes. A
fusion that lost members is emitted again with its remaining members, with the same kind and, where the result is the
same, the same partitions, so that it runs with the same parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.in_place_updates import UPDATES, updated_parameters, writes_in_place, written_operands
from hlo_dispatch.analysis.loop_fusion import has_few_paths, is_loop_fusible, is_recomputed
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.task_partitions import loop_backend_config
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported, resolve_hazards


class ComputationRewriter:
    """Rewrites one computation; `rewrite()` is called once."""

    def __init__(
        self,
        module: Module,
        graph: FlatGraph,
        threads: int,
        *,
        covered: AbstractSet[Node] = frozenset(),
        results: Iterable[Node] = (),
        aliasing: BufferAliasing | None = None,
    ) -> None:
        """Remove the `covered` nodes; the caller of `rewrite()` emits new instructions for those in `results`.

        Args:
            aliasing: buffer aliasing of the module, where several computations are rewritten before it changes.
        """
        self._aliasing = aliasing or BufferAliasing(module)
        self._module, self._graph, self._threads = module, graph, threads
        self._covered, self._results = covered, list(results)
        inside = self._covered - set(self._results)
        self._removed_values = {identifier for identifier, node in graph.value_of.items() if node in inside}
        """Ids of the instructions whose values are removed."""
        self.editor = Editor(module, graph.computation)
        replaced = [identifier for identifier in graph.instruction_of if self._is_replaced(identifier)]
        for identifier in replaced:
            self.editor.erase(identifier)
        self._unchanged = list(self.editor.instructions)
        """Ids of the instructions that are not replaced."""
        self._ids: dict[Node, int] = {}
        self._pending: list[Node] = []
        self._created_updates: dict[int, Collection[int]] = {}
        """Id of a created in-place fusion → numbers of the operands that it may overwrite."""

    def rewrite(self, emit: Callable[[], Node | int]) -> Editor:
        """A draft of the computation with the instructions that `emit` emits in place of the covered ones.

        Args:
            emit: emits an instruction for each of the results, under the id that `identifier` returns for it; returns
                the computation's root value, or the id of a created root instruction.

        Raises:
            RewriteUnsupported: an instruction has a control dependency on a replaced one.
        """
        editor = self.editor
        self._ids.update((result, self.fresh_id()) for result in self._results)
        root = emit()
        emitted_by_caller = len(self._pending)
        for identifier in self._unchanged:
            self._use_live_operands(identifier)
        # Unchanged instructions may be dead now, and with them their operands; so may the result as it was.
        maybe_dead = {self._ids[node] for node in self._pending[emitted_by_caller:]} | {editor.root_id}
        editor.root_id = root if isinstance(root, int) else self.identifier(root, self._graph.computation.root_id)
        while self._pending:
            self._emit_remaining(self._pending.pop())
        editor.remove_dead_code(maybe_dead)
        updates = {
            identifier: written_operands(self._module, instruction)
            for identifier, instruction in editor.instructions.items()
            if (identifier not in editor.created or instruction.opcode in UPDATES)
            and self._writes_in_place(instruction)
        }
        created_updates = {i: numbers for i, numbers in self._created_updates.items() if i in editor.instructions}
        updates |= created_updates
        resolve_hazards(editor, self._aliasing.pairs(self._graph.computation), updates)
        return editor

    def _writes_in_place(self, proto: InstructionProto) -> bool:
        members = self._graph.members.get(proto.id)  # the graph has expanded the fusion already
        if members is None:
            return writes_in_place(self._module, proto)
        return any(member.opcode in UPDATES for member in members)

    # --- unchanged instructions -------------------------------------------------------------------

    def _is_replaced(self, identifier: int) -> bool:
        """Whether the instruction computes a covered value, or reads a removed one."""
        if not self._covered.isdisjoint(self._graph.computed_by(identifier)):
            return True
        return not self._removed_values.isdisjoint(self._graph.instruction_of[identifier].operand_ids[:])

    def _use_live_operands(self, identifier: int) -> None:
        """Replace the instruction's replaced operands."""
        present = self.editor.instructions
        instruction = present[identifier]
        if any(earlier not in present for earlier in instruction.control_predecessor_ids[:]):
            raise RewriteUnsupported(f"%{instruction.name} must run after an instruction that would be replaced")
        operands = instruction.operand_ids[:]
        if any(operand not in present for operand in operands):
            live = [self.identifier(self._graph.value_of[operand], operand) for operand in operands]
            self.editor.set_operands(identifier, live)

    def identifier(self, node: Node, original: int | None = None) -> int:
        """Id of the instruction that computes `node`; queues its emission if there is none yet."""
        present = self.editor.instructions
        if original is not None and original in present:
            return original
        if node in self._ids:
            return self._ids[node]
        if node.top_level_id is not None and node.top_level_id in present:
            return node.top_level_id
        for producer in node.producers:
            if producer in present and self._graph.value_of[producer] is node:
                return producer
        self._ids[node] = self.fresh_id()
        self._pending.append(node)
        return self._ids[node]

    # --- created instructions ---------------------------------------------------------------------

    def _emit_remaining(self, node: Node) -> None:
        """Emit an instruction for a value of a fusion that was removed."""
        producer = self._producer(node)
        group = self._group(node)
        if producer.fusion_kind == "kCustom" and _needs_library(group):
            group = self._group(node, materialize=_is_convert_of_f16)
        if self._is_new_loop(producer, group) and not has_few_paths(group):
            if is_recomputed(self._fused_computation(node, group)[0]):
                group = self._group(node, materialize=_is_shared)
        if all(member.opcode == "bitcast" for member in group):
            self._copy(node, [group[0].operands[0]])
        elif len(group) == 1 and (not node.operands or producer.opcode != "fusion"):
            self._copy(node, node.operands)
        else:
            self._emit_fusion(node, group, producer)

    def _producer(self, node: Node) -> InstructionProto:
        """The top-level instruction that computed `node`; the one whose result it was, if any."""
        return self._graph.instruction_of[node.top_level_id if node.top_level_id is not None else node.producers[0]]

    def _is_new_loop(self, producer: InstructionProto, group: list[Node]) -> bool:
        """Whether a loop fusion replaces another kind of fusion, which computes each value once."""
        is_loop = producer.opcode != "fusion" or producer.fusion_kind == "kLoop"
        return not is_loop and all(is_loop_fusible(node.opcode) for node in group)

    def _group(self, root: Node, *, materialize: Callable[[Node], bool] = lambda _: False) -> list[Node]:
        """The nodes of one fusion with this root, operands first: up to materialized values.

        Args:
            materialize: which other values are materialized, too.
        """
        found = {root}
        pending = [root]
        while pending:
            node = pending.pop()
            for operand in node.operands:
                if operand not in found and not materialize(operand) and not self._is_in_memory(operand, root):
                    if operand in self._covered:
                        raise AssertionError(f"%{operand.name} is inside a match but still has users")
                    found.add(operand)
                    pending.append(operand)
        return sorted(found, key=lambda node: node.index)

    def _is_in_memory(self, node: Node, root: Node) -> bool:
        if node.opcode == "constant":
            # A scalar is cheaper to repeat inside a fusion than to read. XLA puts no larger constant into a loop: it
            # would take two loops that differ in nothing else for equal ones.
            return node.shape.elements != 1
        return node in self._ids or node.top_level_id is not None or node.opcode in ANCHORS

    def _emit_fusion(self, root: Node, group: list[Node], producer: InstructionProto) -> None:
        is_fusion = producer.opcode == "fusion"
        kind = producer.fusion_kind if is_fusion and _needs_library(group) else "kLoop"
        keeps_config = is_fusion and kind == producer.fusion_kind and (root.top_level_id is not None or kind != "kLoop")
        computation, parameters = self._fused_computation(root, group)
        operands = [self.identifier(parameter) for parameter in parameters]
        updates = [node for node in group if node.opcode in UPDATES]
        if updates:
            updated = updated_parameters(computation.instructions[:])
            if root.top_level_id is None:
                # An update in the middle of a fusion works on its own copy; XLA does an update at a fusion's root in
                # place, through bitcasts, too, on a buffer that may still have readers or be the caller's.
                operands = [
                    self.near(parameter).make("copy", parameter.shape, operand, stem="hazard_copy").id
                    if number in updated
                    else operand
                    for number, (parameter, operand) in enumerate(zip(parameters, operands, strict=True))
                ]
            self._created_updates[self._ids[root]] = updated
        self.editor.computations.append(computation)
        self.near(root).fusion(
            computation,
            operands,
            root.proto.shape,
            stem=f"{root.opcode.replace('-', '_')}_fusion",
            kind=kind,
            config=producer.backend_config if keeps_config else self._loop_config(root),
            identifier=self._ids[root],
        )

    def _loop_config(self, root: Node) -> bytes:
        # XLA's code generator does no partitioned update in place.
        return b"" if root.opcode in UPDATES else loop_backend_config(root.shape, self._threads)

    def _fused_computation(self, root: Node, group: list[Node]) -> tuple[ComputationProto, list[Node]]:
        builder = InstructionBuilder.of_new_computation(self._module, "rebuilt_computation", self._graph.computation)
        inside = set(group)
        parameters = list(dict.fromkeys(o for node in group for o in node.operands if o not in inside))
        ids: dict[Node, int] = {}
        for number, parameter in enumerate(parameters):
            ids[parameter] = builder.parameter(number, parameter.shape, f"param_{number}").id
        for node in group:
            ids[node] = builder.clone(node.proto, [ids[operand] for operand in node.operands]).id
        return builder.finished(ids[root]), parameters

    def _copy(self, node: Node, operands: Iterable[Node]) -> None:
        ids = [self.identifier(operand) for operand in operands]
        self.near(node).clone(node.proto, ids, identifier=self._ids[node])

    def near(self, node: Node, origin: Node | None = None) -> InstructionBuilder:
        """A builder that inserts instructions near the one that computed `node`.

        Args:
            origin: the node whose source location they have; default: the same node.
        """
        producer = node.top_level_id if node.top_level_id is not None else node.producers[0]
        return self.editor.after(producer, (origin or node).proto)

    def fresh_id(self) -> int:
        """An id for an instruction that is made later."""
        return self._module.fresh_id(self._graph.computation)


def _needs_library(group: Iterable[Node]) -> bool:
    """Whether the nodes cannot be one loop fusion."""
    return any(not is_loop_fusible(node.opcode) for node in group)


def _is_shared(node: Node) -> bool:
    """Whether a loop would recompute the value for each of several users."""
    return len(node.users) > 1 and bool(node.operands)


def _is_convert_of_f16(node: Node) -> bool:
    """Whether it is a convert that XLA's library fusions refuse; the flat view may have sunk it into one of them."""
    return node.opcode == "convert" and node.operands[0].shape.element_type == "f16"
