"""Module rewriter: rewrites one computation around the instructions that are replaced in it.

Only this module creates, changes or drops instructions. An instruction without a replaced operand keeps its bytes. A
fusion that lost members is emitted again with its remaining members, with the same kind and, where the result is the
same, the same partitions, so that it runs with the same parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.in_place_updates import UPDATES, updated_parameters, writes_in_place, written_operands
from hlo_dispatch.analysis.loop_fusion import has_few_paths, is_loop_fusible, is_recomputed
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.task_partitions import loop_backend_config
from hlo_dispatch.passes.instruction_order import in_order, without_dead_code
from hlo_dispatch.passes.write_after_read_hazards import Draft, RewriteUnsupported, resolve_hazards


@dataclass
class Edit:
    """The contents of a rewritten computation."""

    instructions: list[InstructionProto] = field(default_factory=list[InstructionProto])
    """The computation's new instruction protos, operands before users."""
    root_id: int = 0
    computations: list[ComputationProto] = field(default_factory=list[ComputationProto])
    """New fused computations, called from `instructions`."""


class ComputationRewriter:
    """Rewrites one computation; `edit()` is called once."""

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
        """Remove the `covered` nodes; the caller of `edit()` emits new instructions for those in `results`.

        Args:
            aliasing: buffer aliasing of the module, where several computations are rewritten before it changes.
        """
        self._aliasing = aliasing or BufferAliasing(module)
        self._module, self._graph, self._threads = module, graph, threads
        self._covered, self._results = covered, list(results)
        inside = self._covered - set(self._results)
        self._removed_values = {identifier for identifier, node in graph.value_of.items() if node in inside}
        """Ids of the instructions whose values are removed."""
        self._unchanged = {
            identifier: instruction
            for identifier, instruction in graph.instruction_of.items()
            if not self._is_replaced(identifier)
        }
        self._next_id = max(graph.instruction_of) + 1
        self._ids: dict[Node, int] = {}
        self._pending: list[Node] = []
        self._created: dict[int, tuple[InstructionProto, int]] = {}
        """Id of a created instruction → (proto, preferred position in the original order)."""
        self._position = {identifier: place for place, identifier in enumerate(graph.instruction_of)}
        self._created_updates: dict[int, Collection[int]] = {}
        """Id of a created in-place fusion → numbers of the operands that it may overwrite."""
        self._edit = Edit()

    def edit(self, emit: Callable[[], Node | int]) -> Edit:
        """The computation with the instructions that `emit` emits in place of the covered ones.

        Args:
            emit: emits an instruction for each of the results, under the id that `identifier` returns for it; returns
                the computation's root value, or the id of a created root instruction.

        Raises:
            RewriteUnsupported: an instruction has a control dependency on a replaced one.
        """
        self._ids.update((result, self.fresh_id()) for result in self._results)
        root = emit()
        emitted_by_caller = len(self._pending)
        unchanged = [self._with_live_operands(instruction) for instruction in self._unchanged.values()]
        # Unchanged instructions may be dead now, and with them their operands.
        maybe_dead = [self._ids[node] for node in self._pending[emitted_by_caller:]]
        self._edit.root_id = root if isinstance(root, int) else self.identifier(root, self._graph.computation.root_id)
        while self._pending:
            self._emit_remaining(self._pending.pop())
        unchanged = self._live(unchanged)
        while dead := self._dead(maybe_dead, unchanged):
            for identifier in dead:
                del self._created[identifier]
            unchanged = self._live(unchanged)
        instructions = self._with_hazards_resolved(unchanged)
        self._edit.instructions = in_order(instructions, self._positions())
        return self._edit

    def _positions(self) -> dict[int, int]:
        return self._position | {identifier: near for identifier, (_, near) in self._created.items()}

    def _live(self, unchanged: list[InstructionProto]) -> list[InstructionProto]:
        return without_dead_code(unchanged, [proto for proto, _ in self._created.values()], self._edit.root_id)

    def _dead(self, maybe_dead: list[int], unchanged: list[InstructionProto]) -> list[int]:
        """The created instructions among `maybe_dead` that have no users."""
        present = [identifier for identifier in maybe_dead if identifier in self._created]
        if not present:
            return []
        read = {self._edit.root_id}
        for proto in (*unchanged, *(proto for proto, _ in self._created.values())):
            read.update(proto.operand_ids[:])
        return [identifier for identifier in present if identifier not in read]

    def _with_hazards_resolved(self, unchanged: list[InstructionProto]) -> dict[int, InstructionProto]:
        """All instructions by id, with the copies and control dependencies that aliased buffers need."""
        instructions = {proto.id: proto for proto in unchanged} | {i: proto for i, (proto, _) in self._created.items()}
        updates = {
            proto.id: written_operands(self._module, proto) for proto in unchanged if self._writes_in_place(proto)
        }
        rewired = {proto.id for proto in unchanged if proto is not self._unchanged[proto.id]}
        draft = Draft(
            instructions,
            self._edit.root_id,
            created=set(self._created),
            updates=updates | self._created_updates,
            positions=self._positions(),
            rewired=rewired,
        )
        pairs = self._aliasing.pairs(self._graph.computation)
        resolve_hazards(draft, pairs, lambda stem: (self.fresh_id(), self._module.fresh_name(stem)))
        self._edit.root_id = draft.root_id
        for copy, near in draft.added:
            self._created[copy.id] = (copy, self._created[near][1] if near in self._created else self._position[near])
        return draft.instructions

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

    def _with_live_operands(self, instruction: InstructionProto) -> InstructionProto:
        """The instruction with the ids of its replaced operands; itself where none was replaced."""
        unchanged = self._unchanged.keys()
        if not unchanged >= set(instruction.control_predecessor_ids[:]):
            raise RewriteUnsupported(f"%{instruction.name} must run after an instruction that would be replaced")
        if unchanged >= set(instruction.operand_ids[:]):
            return instruction
        changed = InstructionProto()
        changed.CopyFrom(instruction)
        del changed.operand_ids[:]
        changed.operand_ids.extend(
            self.identifier(self._graph.value_of[operand], operand) for operand in instruction.operand_ids[:]
        )
        return changed

    def identifier(self, node: Node, original: int | None = None) -> int:
        """Id of the instruction that computes `node`; queues its emission if there is none yet."""
        if original is not None and original in self._unchanged:
            return original
        if node in self._ids:
            return self._ids[node]
        if node.top_level_id is not None and node.top_level_id in self._unchanged:
            return node.top_level_id
        for producer in node.producers:
            if producer in self._unchanged and self._graph.value_of[producer] is node:
                return producer
        self._ids[node] = self.fresh_id()
        self._pending.append(node)
        return self._ids[node]

    # --- created instructions ---------------------------------------------------------------------

    def _emit_remaining(self, node: Node) -> None:
        """Emit an instruction for a value of a fusion that was removed."""
        producer = self._producer(node)
        group = self._group(node)
        if self._is_new_loop(producer, group) and not has_few_paths(group):
            if is_recomputed(self._fused_computation(node, group)[0]):
                group = self._group(node, materialize_shared=True)
        if all(member.opcode == "bitcast" for member in group):
            proto = self._copy_of(node, self._ids[node])
            proto.operand_ids.append(self.identifier(group[0].operands[0]))
        elif len(group) == 1 and not node.operands:
            proto = self._copy_of(node, self._ids[node])
        else:
            proto = self._fusion(node, group, producer)
        self.place(proto, node)

    def _producer(self, node: Node) -> InstructionProto:
        """The top-level instruction that computed `node`; the one whose result it was, if any."""
        return self._graph.instruction_of[node.top_level_id if node.top_level_id is not None else node.producers[0]]

    def _is_new_loop(self, producer: InstructionProto, group: list[Node]) -> bool:
        """Whether a loop fusion replaces another kind of fusion, which computes each value once."""
        is_loop = producer.opcode != "fusion" or producer.fusion_kind == "kLoop"
        return not is_loop and all(is_loop_fusible(node.opcode) for node in group)

    def _group(self, root: Node, *, materialize_shared: bool = False) -> list[Node]:
        """The nodes of one fusion with this root, operands first: up to materialized values.

        Args:
            materialize_shared: materialize values with several users, too: a loop would recompute them for each user.
        """
        found = {root}
        pending = [root]
        while pending:
            node = pending.pop()
            for operand in node.operands:
                is_shared = materialize_shared and len(operand.users) > 1 and bool(operand.operands)
                if operand not in found and not is_shared and not self._is_in_memory(operand, root):
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

    def _fusion(self, root: Node, group: list[Node], producer: InstructionProto) -> InstructionProto:
        is_fusion = producer.opcode == "fusion"
        needs_library = any(not is_loop_fusible(node.opcode) for node in group)
        if not is_fusion and len(group) == 1:
            proto = self._copy_of(root, self._ids[root])
            proto.operand_ids.extend(self.identifier(operand) for operand in root.operands)
            return proto
        kind = producer.fusion_kind if is_fusion and needs_library else "kLoop"
        proto = self.new("fusion", f"{root.opcode.replace('-', '_')}_fusion", self._ids[root], root)
        proto.shape.CopyFrom(root.proto.shape)
        proto.fusion_kind = kind
        if is_fusion and kind == producer.fusion_kind and (root.top_level_id is not None or kind != "kLoop"):
            proto.backend_config = producer.backend_config
        else:
            proto.backend_config = loop_backend_config(root.shape, self._threads)
        computation, parameters = self._fused_computation(root, group)
        proto.called_computation_ids.append(computation.id)
        proto.operand_ids.extend(self.identifier(parameter) for parameter in parameters)
        self._edit.computations.append(computation)
        if any(node.opcode in UPDATES for node in group):
            if root.top_level_id is None:
                self._update_copies(proto, group, parameters)
            self._created_updates[proto.id] = updated_parameters(computation.instructions[:])
        return proto

    def _update_copies(self, fusion: InstructionProto, group: list[Node], parameters: list[Node]) -> None:
        """Copy the operands that the fusion updates.

        An update in the middle of a fusion works on its own copy; XLA does an update at a fusion's root in place, on a
        buffer that may still have readers.
        """
        updated = {node.operands[0] for node in group if node.opcode in UPDATES}
        for position, parameter in enumerate(parameters):
            if parameter in updated:
                copy = self.new("copy", "hazard_copy", self.fresh_id(), parameter)
                copy.shape.CopyFrom(parameter.shape.to_proto())
                copy.operand_ids.append(fusion.operand_ids[position])
                fusion.operand_ids[position] = copy.id
                self.place(copy, parameter)

    def _fused_computation(self, root: Node, group: list[Node]) -> tuple[ComputationProto, list[Node]]:
        identifier = self._module.fresh_computation_id()
        computation = ComputationProto(id=identifier, name=self._module.fresh_name("rebuilt_computation"))
        computation.execution_thread = self._graph.computation.execution_thread
        inside = set(group)
        parameters = list(dict.fromkeys(o for node in group for o in node.operands if o not in inside))
        ids: dict[Node, int] = {}
        first = identifier << 32
        for number, parameter in enumerate(parameters):
            proto = computation.instructions.add(opcode="parameter", parameter_number=number)
            proto.name = self._module.fresh_name(f"param_{number}")
            proto.shape.CopyFrom(parameter.shape.to_proto())
            proto.id = ids[parameter] = first + number
        for node in group:
            proto = computation.instructions.add()
            proto.CopyFrom(node.proto)
            proto.name = self._module.fresh_name(node.name)
            proto.id = ids[node] = first + len(ids)
            del proto.operand_ids[:]
            proto.operand_ids.extend(ids[operand] for operand in node.operands)
            del proto.control_predecessor_ids[:]
        computation.root_id = ids[root]
        return computation, parameters

    def new(self, opcode: str, stem: str, identifier: int, origin: Node) -> InstructionProto:
        """An instruction with a fresh name and the metadata of `origin`, not yet placed."""
        proto = InstructionProto(opcode=opcode, id=identifier, name=self._module.fresh_name(stem))
        if origin.proto.HasField("metadata"):
            proto.metadata.CopyFrom(origin.proto.metadata)
        return proto

    def _copy_of(self, node: Node, identifier: int) -> InstructionProto:
        proto = InstructionProto()
        proto.CopyFrom(node.proto)
        proto.id, proto.name = identifier, self._module.fresh_name(node.name)
        del proto.operand_ids[:]
        del proto.control_predecessor_ids[:]
        return proto

    # --- order ------------------------------------------------------------------------------------

    def fresh_id(self) -> int:
        """An id that no instruction of the computation has."""
        self._next_id += 1
        return self._next_id - 1

    def place(self, proto: InstructionProto, node: Node) -> None:
        """Add the created instruction, near the instruction that computed `node`."""
        producer = node.top_level_id if node.top_level_id is not None else node.producers[0]
        self._created[proto.id] = (proto, self._position[producer])
