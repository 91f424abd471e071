"""A module cut in two along a colouring: what prepares, and what is left of the program."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from hlo_dispatch.hlo.flat import FlatGraph, Node
from hlo_dispatch.hlo.module import Module, copy_of
from hlo_dispatch.hlo.schema import ELEMENT_TYPE_NUMBERS, InstructionProto
from hlo_dispatch.hlo.shape import Shape, in_memory_order
from hlo_dispatch.hlo.split import Prepared, Split
from hlo_dispatch.hlo.verify import verify
from hlo_dispatch.rewriting.edit import put_back, sign
from hlo_dispatch.rewriting.order import made_of
from hlo_dispatch.rewriting.rebuild import Edit, Rebuilder
from hlo_dispatch.rewriting.splitting.colour import Colouring, colour

_NOTHING = Colouring((), frozenset())


def cut(serialized: bytes, frozen: AbstractSet[int], threads: int, packed: AbstractSet[str] = frozenset()) -> Split:
    """Cut an optimized module in two.

    Args:
        serialized: its entry takes row-major arrays and returns one or a tuple of them.
        frozen: numbers of the parameters that are frozen.
        threads: how many XLA computes with.
        packed: names of the instructions whose results only a kernel can read.

    Raises:
        ModuleError: the bytes are not a module.
        CannotRebuild: something has to run after what would go.
    """
    late = _Half(serialized, threads)
    colouring = colour(late.graph, frozen)
    prepared = [Prepared(in_memory_order(n.shape), n.name, n.name in packed) for n in colouring.border]
    program, kept = late.program(colouring, frozen)
    if not prepared:
        return Split(None, (), (), program, kept, late.free(frozen))
    early = _Half(serialized, threads)
    preparation, read = early.preparation(colour(early.graph, frozen))
    return Split(preparation, read, prepared, program, kept, late.free(frozen))


def uncut(serialized: bytes, frozen: AbstractSet[int], threads: int) -> Split:
    """The module whole: it reads its weights as they are.

    Raises:
        ModuleError: the bytes are not a module.
    """
    half = _Half(serialized, threads)
    program, kept = half.program(_NOTHING, frozen)
    return Split(None, (), (), program, kept, half.free(frozen))


class _Half:
    """The whole module, of which one half is to be left; for one of them only."""

    def __init__(self, serialized: bytes, threads: int) -> None:
        self.module = Module.from_bytes(serialized)
        # Neither half has an order yet.
        self.module.proto.ClearField("schedule")
        self.graph = FlatGraph(self.module, self.module.entry)
        self.parameters = len(self.module.entry.program_shape.parameters)
        self._threads = threads

    def free(self, frozen: AbstractSet[int]) -> list[int]:
        """Numbers of the parameters that are not frozen."""
        return [number for number in range(self.parameters) if number not in frozen]

    def program(self, colouring: Colouring, frozen: AbstractSet[int]) -> tuple[bytes, list[int]]:
        """The late half, and which frozen parameters it reads as they are."""
        rebuilder = Rebuilder(self.module, self.graph, self._threads, covered=colouring.gone, results=colouring.border)

        def make() -> Node:
            for number, node in enumerate(colouring.border):
                _take(rebuilder, node, self.parameters + number)
            return self.graph.root

        edit = rebuilder.edit(make)
        read = {edit.root_id, *(operand for proto in edit.instructions for operand in proto.operand_ids[:])}
        edit.instructions = [
            proto
            for proto in edit.instructions
            if proto.opcode != "parameter" or proto.id in read or proto.parameter_number not in frozen
        ]
        kept = sorted(
            proto.parameter_number
            for proto in edit.instructions
            if proto.opcode == "parameter" and proto.parameter_number in frozen
        )
        taken = range(self.parameters, self.parameters + len(colouring.border))
        return self._finished(edit, [*taken, *kept, *self.free(frozen)]), kept

    def preparation(self, colouring: Colouring) -> tuple[bytes, list[int]]:
        """The early half, and which frozen parameters it reads."""
        # It gives no results that could take memory over.
        self.module.proto.ClearField("input_output_alias")
        rebuilder = Rebuilder(self.module, self.graph, self._threads)
        edit = rebuilder.edit(lambda: _give(rebuilder, colouring.border))
        edit.instructions = made_of(edit.instructions, edit.root_id)
        read = sorted(proto.parameter_number for proto in edit.instructions if proto.opcode == "parameter")
        return self._finished(edit, read), read

    def _finished(self, edit: Edit, order: Sequence[int]) -> bytes:
        """The module with the rebuilt entry, its parameters numbered as `order` has them."""
        module, entry = self.module, self.module.entry
        places = {number: place for place, number in enumerate(order)}
        for place, proto in enumerate(edit.instructions):
            if proto.opcode == "parameter":
                numbered = edit.instructions[place] = copy_of(proto)
                numbered.parameter_number = places[proto.parameter_number]
        for alias in module.proto.input_output_alias.entries:
            # What is frozen is nobody's to take over, and everything else is still taken.
            alias.parameter_number = places[alias.parameter_number]
        put_back(module, {entry.id: edit})
        sign(module)
        self.graph.take_apart()
        verify(module)
        return module.to_bytes()


def _take(rebuilder: Rebuilder, node: Node, number: int) -> None:
    """Make a parameter of the program for a value that was prepared."""
    own, plain = rebuilder.identifier(node), in_memory_order(node.shape)
    if plain == node.shape:
        _parameter(rebuilder, node, own, node.shape).parameter_number = number
        return
    parameter = _parameter(rebuilder, node, rebuilder.fresh_id(), plain)
    parameter.parameter_number = number
    _bitcast(rebuilder, node, own, node.shape, parameter.id)


def _give(rebuilder: Rebuilder, border: Sequence[Node]) -> int:
    """Make the result of the preparation: row-major arrays of the same bytes, several of them in a tuple."""
    if len(border) == 1:
        return _in_memory_order(rebuilder, border[0])
    root = rebuilder.new("tuple", "everything_prepared", rebuilder.fresh_id(), border[-1])
    root.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
    for node in border:
        root.operand_ids.append(_in_memory_order(rebuilder, node))
        root.shape.tuple_shapes.append(in_memory_order(node.shape).to_proto())
    rebuilder.place(root, border[-1])
    return root.id


def _in_memory_order(rebuilder: Rebuilder, node: Node) -> int:
    identifier, plain = rebuilder.identifier(node), in_memory_order(node.shape)
    if plain == node.shape:
        return identifier
    return _bitcast(rebuilder, node, rebuilder.fresh_id(), plain, identifier)


def _parameter(rebuilder: Rebuilder, node: Node, identifier: int, shape: Shape) -> InstructionProto:
    proto = rebuilder.new("parameter", "prepared", identifier, node)
    proto.shape.CopyFrom(shape.to_proto())
    rebuilder.place(proto, node)
    return proto


def _bitcast(rebuilder: Rebuilder, node: Node, identifier: int, shape: Shape, operand: int) -> int:
    proto = rebuilder.new("bitcast", "renamed", identifier, node)
    proto.shape.CopyFrom(shape.to_proto())
    proto.operand_ids.append(operand)
    rebuilder.place(proto, node)
    return identifier
