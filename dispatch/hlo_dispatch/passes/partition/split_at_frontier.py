"""A module cut in two along a colouring: what prepares, and what is left of the program."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.entry_parameters import keep_inputs, renumber_parameters
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, InstructionProto
from hlo_dispatch.ir.shape import Shape, in_memory_order
from hlo_dispatch.ir.split_module import Prepared, Split
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.edit import put_back
from hlo_dispatch.passes.instruction_order import made_of
from hlo_dispatch.passes.module_rewriter import Edit, Rebuilder
from hlo_dispatch.passes.partition.frontier import Colouring, colour


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
    free = _free(late.module, frozen)
    colouring = colour(late.graph, frozen)
    prepared = [Prepared(in_memory_order(n.shape), n.name, n.name in packed) for n in colouring.border]
    program, kept = late.program(colouring, frozen)
    if not prepared:
        return Split(None, (), (), program, kept, free)
    early = _Half(serialized, threads)
    preparation, read = early.preparation(colour(early.graph, frozen))
    return Split(preparation, read, prepared, program, kept, free)


def uncut(serialized: bytes, frozen: AbstractSet[int]) -> Split:
    """The module whole: it reads its weights as they are, and takes none that it does not read.

    Raises:
        ModuleError: the bytes are not a module.
    """
    module = Module.from_bytes(serialized)
    module.proto.ClearField("schedule")
    free = _free(module, frozen)
    edit = Edit(module.entry.instructions[:], module.entry.root_id)
    kept = _kept(edit, frozen)
    return Split(None, (), (), _finished(module, edit, [*kept, *free]), kept, free)


def _free(module: Module, frozen: AbstractSet[int]) -> list[int]:
    """Numbers of the parameters that are not frozen."""
    return [number for number in range(len(module.entry.program_shape.parameters)) if number not in frozen]


def _kept(edit: Edit, frozen: AbstractSet[int]) -> list[int]:
    """Numbers of the frozen parameters that are read; drops the others."""
    read = {edit.root_id}
    for proto in edit.instructions:
        read.update(proto.operand_ids[:])
        read.update(proto.control_predecessor_ids[:])
    edit.instructions = [
        proto
        for proto in edit.instructions
        if proto.opcode != "parameter" or proto.id in read or proto.parameter_number not in frozen
    ]
    return sorted(
        proto.parameter_number
        for proto in edit.instructions
        if proto.opcode == "parameter" and proto.parameter_number in frozen
    )


def _finished(module: Module, edit: Edit, order: Sequence[int]) -> bytes:
    """The module with its entry rebuilt, and its parameters in this order."""
    put_back(module, {module.entry.id: edit})
    renumber_parameters(module, order)
    verify(module)
    return module.to_bytes()


class _Half:
    """The whole module, of which one half is to be left; for one of them only."""

    def __init__(self, serialized: bytes, threads: int) -> None:
        self.module = Module.from_bytes(serialized)
        # Neither half has an order yet.
        self.module.proto.ClearField("schedule")
        self.graph = FlatGraph(self.module, self.module.entry)
        self.parameters = len(self.module.entry.program_shape.parameters)
        self._threads = threads

    def program(self, colouring: Colouring, frozen: AbstractSet[int]) -> tuple[bytes, list[int]]:
        """The late half, and which frozen parameters it reads as they are."""
        rebuilder = Rebuilder(self.module, self.graph, self._threads, covered=colouring.gone, results=colouring.border)

        def make() -> Node:
            for number, node in enumerate(colouring.border):
                _take(rebuilder, node, self.parameters + number)
            return self.graph.root

        edit = rebuilder.edit(make)
        kept = _kept(edit, frozen)
        taken = range(self.parameters, self.parameters + len(colouring.border))
        return self._finished(edit, [*taken, *kept, *_free(self.module, frozen)]), kept

    def preparation(self, colouring: Colouring) -> tuple[bytes, list[int]]:
        """The early half, and which frozen parameters it reads."""
        # It gives no results that could take memory over.
        keep_inputs(self.module)
        rebuilder = Rebuilder(self.module, self.graph, self._threads)
        edit = rebuilder.edit(lambda: _give(rebuilder, colouring.border))
        edit.instructions = made_of(edit.instructions, edit.root_id)
        read = sorted(proto.parameter_number for proto in edit.instructions if proto.opcode == "parameter")
        return self._finished(edit, read), read

    def _finished(self, edit: Edit, order: Sequence[int]) -> bytes:
        self.graph.take_apart()
        return _finished(self.module, edit, order)


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
