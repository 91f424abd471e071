"""The editing hand: one computation rebuilt around what is replaced in it.

Only here are instructions created, changed or dropped. What nothing replaced touches keeps its very bytes.
A fusion that lost members is re-emitted with what is left of it, under its own kind and, where the result
is the same, its own partitions, so that it runs as parallel as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from hlo_dispatch.analysis.buffer_aliasing import Sharing
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.in_place_updates import UPDATES, updated_parameters, writes_in_place, written_operands
from hlo_dispatch.analysis.loop_fusion import has_few_ways, is_recomputed, may_be_in_loop
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.task_partitions import loop_backend_config
from hlo_dispatch.passes.instruction_order import in_order, needed
from hlo_dispatch.passes.write_after_read_hazards import CannotRebuild, Draft, protect


@dataclass
class Edit:
    """What a rebuilt computation consists of."""

    instructions: list[InstructionProto] = field(default_factory=list[InstructionProto])
    """The computation's new instruction protos, operands before users."""
    root_id: int = 0
    computations: list[ComputationProto] = field(default_factory=list[ComputationProto])
    """New fused computations, called from `instructions`."""


class Rebuilder:
    """Rebuilds one computation; `edit()` is called once."""

    def __init__(
        self,
        module: Module,
        graph: FlatGraph,
        threads: int,
        *,
        covered: AbstractSet[Node] = frozenset(),
        results: Iterable[Node] = (),
        sharing: Sharing | None = None,
    ) -> None:
        """What is `covered` goes; those of it in `results` are still read, and made by whoever calls `edit()`.

        Args:
            sharing: the module's, where several of its computations are rebuilt before it changes.
        """
        self._sharing = sharing or Sharing(module)
        self._module, self._graph, self._threads = module, graph, threads
        self._covered, self._results = covered, list(results)
        inside = self._covered - set(self._results)
        self._vanishing = {identifier for identifier, node in graph.value_of.items() if node in inside}
        """Ids of the instructions whose values will not exist any more."""
        self._kept = {
            identifier: instruction
            for identifier, instruction in graph.instruction_of.items()
            if not self._is_touched(identifier)
        }
        self._next_id = max(graph.instruction_of) + 1
        self._ids: dict[Node, int] = {}
        self._pending: list[Node] = []
        self._created: dict[int, tuple[InstructionProto, int]] = {}
        """New instruction id → (proto, position in the original order that it should stand near)."""
        self._position = {identifier: place for place, identifier in enumerate(graph.instruction_of)}
        self._new_updates: dict[int, Collection[int]] = {}
        """Id of a new fusion that writes in place → the numbers of the operands that it may write over."""
        self._edit = Edit()

    def edit(self, make: Callable[[], Node | int]) -> Edit:
        """The computation with what `make` makes in place of what was covered.

        Args:
            make: makes an instruction for each of the results, under the id that `identifier` has for it; returns the
                value that is the computation's, or the id of an instruction of its own that is.

        Raises:
            CannotRebuild: the surroundings do not allow it (a control dependency on what is replaced).
        """
        self._ids.update((result, self.fresh_id()) for result in self._results)
        root = make()
        asked = len(self._pending)
        kept = [self._with_live_operands(instruction) for instruction in self._kept.values()]
        # What is kept may itself be read by nobody any more.
        doubtful = [self._ids[node] for node in self._pending[asked:]]
        self._edit.root_id = root if isinstance(root, int) else self.identifier(root, self._graph.computation.root_id)
        while self._pending:
            self._emit_leftover(self._pending.pop())
        kept = self._needed(kept)
        while unread := self._unread(doubtful, kept):
            for identifier in unread:
                del self._created[identifier]
            kept = self._needed(kept)
        instructions = self._protected(kept)
        self._edit.instructions = in_order(instructions, self._place())
        return self._edit

    def _place(self) -> dict[int, int]:
        return self._position | {identifier: near for identifier, (_, near) in self._created.items()}

    def _needed(self, kept: list[InstructionProto]) -> list[InstructionProto]:
        return needed(kept, [proto for proto, _ in self._created.values()], self._edit.root_id)

    def _unread(self, doubtful: list[int], kept: list[InstructionProto]) -> list[int]:
        """Those of the `doubtful` new instructions that nothing reads."""
        left = [identifier for identifier in doubtful if identifier in self._created]
        if not left:
            return []
        read = {self._edit.root_id}
        for proto in (*kept, *(proto for proto, _ in self._created.values())):
            read.update(proto.operand_ids[:])
        return [identifier for identifier in left if identifier not in read]

    def _protected(self, kept: list[InstructionProto]) -> dict[int, InstructionProto]:
        """All instructions by id, with the copies and orderings that shared buffers need."""
        instructions = {proto.id: proto for proto in kept} | {i: proto for i, (proto, _) in self._created.items()}
        updates = {proto.id: written_operands(self._module, proto) for proto in kept if self._writes_in_place(proto)}
        renamed = {proto.id for proto in kept if proto is not self._kept[proto.id]}
        draft = Draft(
            instructions,
            self._edit.root_id,
            ours=set(self._created),
            updates=updates | self._new_updates,
            place=self._place(),
            renamed=renamed,
        )
        pairs = self._sharing.pairs(self._graph.computation)
        protect(draft, pairs, lambda stem: (self.fresh_id(), self._module.fresh_name(stem)))
        self._edit.root_id = draft.root_id
        for copy, near in draft.added:
            self._created[copy.id] = (copy, self._created[near][1] if near in self._created else self._position[near])
        return draft.instructions

    def _writes_in_place(self, proto: InstructionProto) -> bool:
        members = self._graph.members.get(proto.id)  # which the graph has read already
        if members is None:
            return writes_in_place(self._module, proto)
        return any(member.opcode in UPDATES for member in members)

    # --- what stays -------------------------------------------------------------------------------

    def _is_touched(self, identifier: int) -> bool:
        """Whether the instruction computes what a call does, or reads what will not exist any more."""
        if not self._covered.isdisjoint(self._graph.computed_by(identifier)):
            return True
        return not self._vanishing.isdisjoint(self._graph.instruction_of[identifier].operand_ids[:])

    def _with_live_operands(self, instruction: InstructionProto) -> InstructionProto:
        """The instruction, with operands that were replaced renamed; itself where none was."""
        kept = self._kept.keys()
        if not kept >= set(instruction.control_predecessor_ids[:]):
            raise CannotRebuild(f"%{instruction.name} must run after an instruction that would be replaced")
        if kept >= set(instruction.operand_ids[:]):
            return instruction
        changed = InstructionProto()
        changed.CopyFrom(instruction)
        del changed.operand_ids[:]
        changed.operand_ids.extend(
            self.identifier(self._graph.value_of[operand], operand) for operand in instruction.operand_ids[:]
        )
        return changed

    def identifier(self, node: Node, original: int | None = None) -> int:
        """Id of the instruction that will hold `node`'s value; queues its emission if nothing does yet."""
        if original is not None and original in self._kept:
            return original
        if node in self._ids:
            return self._ids[node]
        if node.top is not None and node.top in self._kept:
            return node.top
        for home in node.homes:
            if home in self._kept and self._graph.value_of[home] is node:
                return home
        self._ids[node] = self.fresh_id()
        self._pending.append(node)
        return self._ids[node]

    # --- what is new ------------------------------------------------------------------------------

    def _emit_leftover(self, node: Node) -> None:
        """One instruction for a value that lived in a fusion which is no more."""
        home = self._home(node)
        group = self._group(node)
        if self._is_new_loop(home, group) and not has_few_ways(group):
            if is_recomputed(self._fused_computation(node, group)[0]):
                group = self._group(node, apart=True)
        if all(member.opcode == "bitcast" for member in group):
            proto = self._copy_of(node, self._ids[node])
            proto.operand_ids.append(self.identifier(group[0].operands[0]))
        elif len(group) == 1 and not node.operands:
            proto = self._copy_of(node, self._ids[node])
        else:
            proto = self._fusion(node, group, home)
        self.place(proto, node)

    def _home(self, node: Node) -> InstructionProto:
        """The fusion (or plain instruction) that computed `node`; its own where it was one's result."""
        return self._graph.instruction_of[node.top if node.top is not None else node.homes[0]]

    def _is_new_loop(self, home: InstructionProto, group: list[Node]) -> bool:
        """Whether a loop is to compute what another kind of fusion did, which computes each value once."""
        is_loop = home.opcode != "fusion" or home.fusion_kind == "kLoop"
        return not is_loop and all(may_be_in_loop(node.opcode) for node in group)

    def _group(self, root: Node, *, apart: bool = False) -> list[Node]:
        """The nodes to compute together for `root`, operands first: back to values that are in memory.

        Args:
            apart: what several others read is to be in memory, too: a loop would compute it again for each of them.
        """
        found = {root}
        pending = [root]
        while pending:
            node = pending.pop()
            for operand in node.operands:
                is_shared = apart and len(operand.users) > 1 and bool(operand.operands)
                if operand not in found and not is_shared and not self._is_in_memory(operand, root):
                    if operand in self._covered:
                        raise AssertionError(f"%{operand.name} is inside a match but still needed")
                    found.add(operand)
                    pending.append(operand)
        return sorted(found, key=lambda node: node.index)

    def _is_in_memory(self, node: Node, root: Node) -> bool:
        if node.opcode == "constant":
            # A scalar is cheaper to repeat inside a fusion than to read. What is larger XLA puts into no loop: it
            # takes two loops for one that differ in nothing else.
            return node.shape.elements != 1
        return node in self._ids or node.top is not None or node.opcode in ANCHORS

    def _fusion(self, root: Node, group: list[Node], home: InstructionProto) -> InstructionProto:
        is_fusion = home.opcode == "fusion"
        needs_library = any(not may_be_in_loop(node.opcode) for node in group)
        if not is_fusion and len(group) == 1:
            proto = self._copy_of(root, self._ids[root])
            proto.operand_ids.extend(self.identifier(operand) for operand in root.operands)
            return proto
        kind = home.fusion_kind if is_fusion and needs_library else "kLoop"
        proto = self.new("fusion", f"{root.opcode.replace('-', '_')}_fusion", self._ids[root], root)
        proto.shape.CopyFrom(root.proto.shape)
        proto.fusion_kind = kind
        if is_fusion and kind == home.fusion_kind and (root.top is not None or kind != "kLoop"):
            proto.backend_config = home.backend_config
        else:
            proto.backend_config = loop_backend_config(root.shape, self._threads)
        computation, parameters = self._fused_computation(root, group)
        proto.called_computation_ids.append(computation.id)
        proto.operand_ids.extend(self.identifier(parameter) for parameter in parameters)
        self._edit.computations.append(computation)
        if any(node.opcode in UPDATES for node in group):
            if root.top is None:
                self._update_copies(proto, group, parameters)
            self._new_updates[proto.id] = updated_parameters(computation.instructions[:])
        return proto

    def _update_copies(self, fusion: InstructionProto, group: list[Node], parameters: list[Node]) -> None:
        """Give the fusion copies of what it updates.

        An update in the middle of a fusion works on a copy of its own; as the root of a fusion XLA does it in
        place, on a buffer that may still be needed.
        """
        updated = {node.operands[0] for node in group if node.opcode in UPDATES}
        for position, parameter in enumerate(parameters):
            if parameter in updated:
                copy = self.new("copy", "kept_apart", self.fresh_id(), parameter)
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
        self._next_id += 1
        return self._next_id - 1

    def place(self, proto: InstructionProto, node: Node) -> None:
        """Note where in the computation the new instruction should stand: near what computed `node`."""
        home = node.top if node.top is not None else node.homes[0]
        self._created[proto.id] = (proto, self._position[home])
