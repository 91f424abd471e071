"""Flat graph: value-numbered dataflow graph of one computation with every fusion expanded.

Optimized HLO is fused, and fusion has *duplicated* instructions: an add and a relu that three fusions need are in all
three. The flat view undoes both. Equal instructions on equal operands are one `Node`, and a node
has the ids of all top-level instructions that compute it (`producers`): the matcher sees the program as the
user wrote it, and the module rewriter knows which instructions to rewrite.

XLA:CPU converts bf16 to f32 first, then transposes and copies f32. Widening changes no value, so the flat view sinks
the convert below rearranging ops: a bf16 kernel finds bf16 elements in its order.

Invariants: `graph.nodes` is in topological order (operands before users); a fusion that cannot
be expanded (several outputs, but for those of one reduction) is one opaque node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

from hlo_dispatch.analysis.peeling import PEEL_LAYOUTS, is_widening
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import PLAIN, PURE_WITH_FIELDS
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of

INSERTED_COPY = "kept-copy"


class Node:
    """A value of the flat graph: one instruction, however often XLA wrote it."""

    __slots__ = (
        "index",
        "is_live_out",
        "opcode",
        "operands",
        "producers",
        "proto",
        "scalar",
        "shape",
        "top_level_id",
        "users",
    )

    def __init__(
        self, index: int, opcode: str, shape: Shape, operands: tuple[Node, ...], proto: InstructionProto
    ) -> None:
        self.index = index
        self.opcode = opcode
        self.shape = shape
        self.operands = operands
        self.users: list[Node] = []
        """Distinct nodes that have this one as an operand."""
        self.proto = proto
        """The instruction (the first one seen) that computes this value."""
        self.producers: list[int] = []
        """Ids of the top-level instructions that compute this value, alone or inside a fusion."""
        self.top_level_id: int | None = None
        """Id of the top-level instruction whose result this is, if it is one's result."""
        self.is_live_out = False
        """Whether the computation's result is this value."""
        self.scalar: float | bool | None = False
        """Cache of the match package: value of a scalar constant, None for other nodes, False if not computed."""

    @property
    def name(self) -> str:
        return self.proto.name

    def __repr__(self) -> str:
        return f"<{self.index} %{self.name} = {self.shape} {self.opcode}>"


class FlatGraph:
    """The flat view of one computation (an entry, a while body, a branch …)."""

    def __init__(self, module: Module, computation: ComputationProto) -> None:
        self.module = module
        self.computation = computation
        self.nodes: list[Node] = []
        self.value_of: dict[int, Node] = {}
        """Top-level instruction id → the node that is its result."""
        self.instruction_of: dict[int, InstructionProto] = {}
        """Top-level instruction id → its proto."""
        self.members: dict[int, list[Node]] = {}
        """Id of an expanded fusion → the nodes inside it."""
        self.static: AbstractSet[Node] = frozenset()
        """The static values (binding_time.py); none unless the caller froze parameters."""
        self._numbering: dict[tuple[object, ...], Node] = {}
        self._narrow: list[Node] = []
        self._narrow_of: dict[int, list[Node]] = {}
        for instruction in computation.instructions[:]:
            self._add_instruction(instruction)
        self.root = self.value_of[computation.root_id]
        self._drop_dead()

    def _add_instruction(self, instruction: InstructionProto) -> None:
        identifier = instruction.id
        self.instruction_of[identifier] = instruction
        operands = tuple([self.value_of[i] for i in instruction.operand_ids[:]])
        if instruction.opcode == "fusion" and self._is_expandable(instruction):
            members: list[Node] = []
            node = self._expand(instruction, operands, members)
            members += self._narrow
            for member in members:
                member.producers.append(identifier)
            self.members[identifier] = members
        else:
            # Copy insertion has run: a copy outside a fusion separates two live ranges and must stay.
            opcode = INSERTED_COPY if instruction.opcode == "copy" else instruction.opcode
            node = self._number(instruction, operands, opcode, inside=False)
            node.producers.append(identifier)
            if self._narrow:
                self._narrow_of[identifier] = list(self._narrow)
                for narrow in self._narrow:
                    narrow.producers.append(identifier)
        self._narrow.clear()
        if node.top_level_id is None:
            node.top_level_id = identifier
        self.value_of[identifier] = node

    def computed_by(self, identifier: int) -> list[Node]:
        """All values that a top-level instruction computes: a fusion's members, or its own value."""
        members = self.members.get(identifier)
        if members is None:
            return [self.value_of[identifier], *self._narrow_of.get(identifier, ())]
        return members

    def _is_expandable(self, instruction: InstructionProto) -> bool:
        if instruction.control_predecessor_ids:
            return False
        return instruction.shape.element_type != 13 or self._is_one_reduction(instruction)  # 13: a tuple

    def _is_one_reduction(self, fusion: InstructionProto) -> bool:
        """Whether all outputs are those of one reduction, as argmax has two."""
        computation = self.module.computations[fusion.called_computation_ids[0]]
        return any(i.opcode == "reduce" and i.id == computation.root_id for i in computation.instructions[:])

    def _expand(self, fusion: InstructionProto, operands: tuple[Node, ...], members: list[Node]) -> Node:
        computation = self.module.computations[fusion.called_computation_ids[0]]
        values: dict[int, Node] = {}
        number = self._number
        for instruction in computation.instructions[:]:
            opcode = instruction.opcode
            if opcode == "parameter":
                values[instruction.id] = operands[instruction.parameter_number]
                continue
            inner = tuple([values[i] for i in instruction.operand_ids[:]])
            if opcode == "fusion":
                values[instruction.id] = self._expand(instruction, inner, members)
                continue
            node = values[instruction.id] = number(instruction, inner, opcode, inside=True)
            members.append(node)
        return values[computation.root_id]

    def _number(self, instruction: InstructionProto, operands: tuple[Node, ...], opcode: str, *, inside: bool) -> Node:
        """The node of this instruction: an existing one where an equal instruction was seen."""
        waits = not inside and instruction.control_predecessor_ids
        if opcode in PEEL_LAYOUTS and not waits and _can_move_before(operands[0]):
            return self._rearranged_before_widening(instruction, operands[0].operands[0], opcode, inside=inside)
        shape = shape_of(instruction.shape)
        key = (opcode, shape, operands) if opcode in PLAIN else _key(instruction, shape, operands, opcode)
        if key is not None and not waits:
            known = self._numbering.get(key)
            if known is not None:
                return known
        node = Node(len(self.nodes), opcode, shape, operands, instruction)
        if key is not None:
            self._numbering[key] = node
        self.nodes.append(node)
        for operand in operands:
            # Operands are few and a node's newest user is last: this finds repeats without a set.
            if not operand.users or operand.users[-1] is not node:
                operand.users.append(node)
        return node

    def _rearranged_before_widening(
        self, instruction: InstructionProto, source: Node, opcode: str, *, inside: bool
    ) -> Node:
        """Rewrite `instruction`, which rearranges a widened `source`, as a convert of the rearranged source."""
        narrow, wide = InstructionProto(), InstructionProto(opcode="convert", id=instruction.id, name=instruction.name)
        narrow.CopyFrom(instruction)
        narrow.shape.element_type = ELEMENT_TYPE_NUMBERS[source.shape.element_type]
        wide.shape.CopyFrom(instruction.shape)
        wide.metadata.CopyFrom(instruction.metadata)
        moved = self._number(narrow, (source,), opcode, inside=inside)
        self._narrow.append(moved)
        return self._number(wide, (moved,), "convert", inside=inside)

    def _drop_dead(self) -> None:
        """Drop dead users (XLA leaves dead code inside some fusions)."""
        self.root.is_live_out = True
        alive = bytearray(len(self.nodes))
        for node in reversed(self.nodes):
            # A top-level instruction is needed whether or not its result is used: it may have a side effect. A
            # convert has none, and its rearranging user may have been moved before it.
            if alive[node.index] or node.is_live_out or (node.top_level_id is not None and node.opcode != "convert"):
                alive[node.index] = 1
                for operand in node.operands:
                    alive[operand.index] = 1
        if not all(alive):
            for node in self.nodes:
                if not all(alive[user.index] for user in node.users):
                    node.users = [user for user in node.users if alive[user.index]]

    def break_reference_cycles(self) -> None:
        """Break the reference cycles of the nodes, so that they are freed without Python's cycle collector.

        Nothing may use the graph afterwards.
        """
        for node in self.nodes:
            node.users = []


@contextmanager
def flat_graphs(module: Module) -> Generator[Callable[[int], FlatGraph]]:
    """A context with a function from a computation's id to its cached flat view; their cycles are broken at the end."""
    graphs: dict[int, FlatGraph] = {}

    def graph_of(identifier: int) -> FlatGraph:
        if identifier not in graphs:
            graphs[identifier] = FlatGraph(module, module.computations[identifier])
        return graphs[identifier]

    try:
        yield graph_of
    finally:
        for graph in graphs.values():
            graph.break_reference_cycles()


def _key(
    instruction: InstructionProto, shape: Shape, operands: tuple[Node, ...], opcode: str
) -> tuple[object, ...] | None:
    """Value-numbering key of an instruction whose value does not depend on opcode, shape and operands alone.

    None where the value is not deterministic.
    """
    details = _DETAILS.get(opcode)
    if details is not None:
        return (opcode, shape, operands, details(instruction))
    if opcode == "constant":
        return (opcode, shape, instruction.literal.SerializeToString())
    if opcode in PURE_WITH_FIELDS:
        return (opcode, shape, operands, _meaning(instruction))
    return None


def _dimensions(instruction: InstructionProto) -> object:
    return tuple(instruction.dimensions[:])


def _slice_bounds(instruction: InstructionProto) -> object:
    return tuple([(bounds.start, bounds.limit, bounds.stride) for bounds in instruction.slice_dimensions[:]])


_DETAILS: dict[str, Callable[[InstructionProto], object]] = {
    "broadcast": _dimensions,
    "concatenate": _dimensions,
    "dynamic-slice": lambda _: None,  # its sizes are the shape's
    "get-tuple-element": lambda instruction: instruction.tuple_index,
    "iota": _dimensions,
    "reverse": _dimensions,
    "slice": _slice_bounds,
    "transpose": _dimensions,
}
"""Frequent opcode → the only fields on which an instruction's value depends besides shape and operands."""


def _can_move_before(node: Node) -> bool:
    """Whether `node` is a convert that changes no value, and waits for nothing."""
    return is_widening(node) and not node.proto.control_predecessor_ids


def _meaning(instruction: InstructionProto) -> bytes:
    """Every field of the instruction except its name, its place in the graph and where it came from."""
    copy = type(instruction)()
    copy.CopyFrom(instruction)
    for field in ("name", "id", "operand_ids", "metadata", "control_predecessor_ids"):
        copy.ClearField(field)
    return copy.SerializeToString(deterministic=True)
