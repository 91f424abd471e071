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
from functools import cached_property

from hlo_dispatch.analysis.peeling import INSERTED_COPY, PEEL_LAYOUTS
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import PLAIN, PURE_WITH_FIELDS
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, INSTRUCTION_FIELDS, ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of, shape_of_serialized
from hlo_dispatch.process.native import native

_NARROW_INTEGERS = frozenset(("s4", "s8", "u4", "u8"))


class Node:
    """A value of the flat graph: one instruction, however often XLA wrote it."""

    __slots__ = (
        "has_control_predecessors",
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
        self.has_control_predecessors = len(proto.control_predecessor_ids) > 0
        self.producers: list[int] = []
        """Ids of the top-level instructions that compute this value, alone or inside a fusion."""
        self.top_level_id: int | None = None
        """Id of the top-level instruction whose result this is, if it is one's result."""
        self.is_live_out = False
        """Whether the computation's result is this value."""
        self.scalar: float | bool | None = False
        """The number that all elements share, None where there is none; `scalar_constants.py` computes it when it is
        first asked for, and until then it is False."""

    @property
    def name(self) -> str:
        return self.proto.name

    def __repr__(self) -> str:
        return f"<{self.index} %{self.name} = {self.shape} {self.opcode}>"


class FlatGraph:
    """The flat view of one computation (an entry, a while body, a branch …).

    Raises:
        ModuleError: an operand is not ahead of its user, a fusion calls itself or a computation that is not there, or
            fusions call others too often to be expanded.
    """

    def __init__(self, module: Module, computation: ComputationProto) -> None:
        self.module = module
        self.computation = computation
        self.nodes: list[Node]
        self.value_of: dict[int, Node]
        """Top-level instruction id → the node that is its result."""
        self.instruction_of: dict[int, InstructionProto]
        """Top-level instruction id → its proto."""
        self.members: dict[int, list[Node]]
        """Id of an expanded fusion → the nodes inside it."""
        self.root: Node
        self.shapes: list[Shape]
        """The shapes of all values, each once."""
        self.static: AbstractSet[Node] = frozenset()
        """The static values (binding_time.py); none unless the caller froze parameters."""
        self.applied: dict[int, str] = {}
        """Id of a computation → the opcode that it applies to its two parameters (match/reduction.py), once known."""
        self.takes_first: dict[tuple[int, str], bool] = {}
        """Id of a computation, argmax or argmin → whether a reduction by it is that (match/argmax.py), once known."""

        def called(identifier: int) -> tuple[bytes, list[InstructionProto]]:
            found = module.computations[identifier]
            return module.message(found), found.instructions[:]

        try:
            (
                self.nodes,
                self.value_of,
                self.instruction_of,
                self.members,
                self._narrow_of,
                self.root,
                self.shapes,
            ) = native().flat_graph(
                *called(computation.id),
                called,
                shape_of_serialized,
                _rearranged,
                Node,
                _FIELDS,
                PEEL_LAYOUTS,
                INSERTED_COPY,
            )
        except (RuntimeError, LookupError) as error:
            raise ModuleError(f"computation {computation.name} is no HLO: {error}") from error

    @cached_property
    def has_narrow_integers(self) -> bool:
        """Whether any value has integers of eight bits or less."""
        return any(shape.element_type in _NARROW_INTEGERS for shape in self.shapes)

    def computed_by(self, identifier: int) -> list[Node]:
        """All values that a top-level instruction computes: a fusion's members, or its own value."""
        members = self.members.get(identifier)
        if members is None:
            return [self.value_of[identifier], *self._narrow_of.get(identifier, ())]
        return members

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


def _rearranged(instruction: InstructionProto, source: Shape) -> tuple[InstructionProto, InstructionProto, Shape]:
    """An instruction that rearranges a widened value, as one on the narrower `source`, the widening of that, and the
    shape in between.
    """
    narrow, wide = InstructionProto(), InstructionProto(opcode="convert", id=instruction.id, name=instruction.name)
    narrow.CopyFrom(instruction)
    narrow.shape.element_type = ELEMENT_TYPE_NUMBERS[source.element_type]
    wide.shape.CopyFrom(instruction.shape)
    wide.metadata.CopyFrom(instruction.metadata)
    return narrow, wide, shape_of(narrow.shape)


def _numbers(*names: str) -> tuple[int, ...]:
    return tuple(INSTRUCTION_FIELDS[name] for name in names)


_FIELDS: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(PLAIN, _numbers()),
    # Every field except its name, its place in the graph and where it came from.
    **dict.fromkeys(PURE_WITH_FIELDS, None),
    **dict.fromkeys(("broadcast", "concatenate", "iota", "reverse", "transpose"), _numbers("dimensions")),
    "constant": _numbers("literal"),
    "dynamic-slice": _numbers(),  # its sizes are the shape's
    "get-tuple-element": _numbers("tuple_index"),
    "slice": _numbers("slice_dimensions"),
}
"""Opcode → numbers of the only fields on which an instruction's value depends besides shape and operands; None: all.
Instructions of other opcodes are not deterministic, or may not be."""
