"""What is early in a loop's body or in a branch, computed outside of it.

The values go in as elements of the tuple that the computation takes, in the places of what only they were made of: a
loop does not carry weights that it does not read any more. Innermost first, so that what leaves a loop in a loop's body
leaves that one, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.binding_time import entered, given_everywhere, is_element
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.passes.edit import put_back
from hlo_dispatch.passes.module_rewriter import Edit, Rebuilder
from hlo_dispatch.passes.partition.clone_into_parent import transplant
from hlo_dispatch.passes.partition.frontier import Colouring, colour


def hoist(
    serialized: bytes, frozen: AbstractSet[int], threads: int, packed: AbstractSet[str]
) -> tuple[bytes, set[str]]:
    """Move what is early in loops and branches to the entry.

    Args:
        serialized: an optimized module.
        frozen: numbers of the entry's parameters that are frozen.
        threads: how many XLA computes with.
        packed: names of the instructions whose results only a kernel can read.

    Returns:
        the module, and the names of those instructions in it.

    Raises:
        ModuleError: the bytes are not a module.
        CannotRebuild: something has to run after what would go.
    """
    module = Module.from_bytes(serialized)
    names = set(packed)
    with flat_graphs(module) as graph_of:
        given = given_everywhere(module, frozen, graph_of)
    if len(given) == 1:
        return serialized, names
    for door in list(_doors(module, module.entry)):
        if given.get(door.inner):
            names |= _Hoist(module, door, given[door.inner], threads).run(names)
    return module.to_bytes(), names


@dataclass(frozen=True)
class _Door:
    """Where a computation is entered."""

    outer: int
    """Id of the computation that enters it."""
    instruction: int
    """Id of the one that does."""
    inner: int
    """Id of the computation that is entered."""
    place: int
    """Which operand goes in."""


def _doors(module: Module, computation: ComputationProto) -> Iterator[_Door]:
    """All of them below a computation, innermost first."""
    for instruction in computation.instructions[:]:
        for place, (inner, _) in enumerate(entered(instruction)):
            yield from _doors(module, module.computations[inner])
            yield _Door(computation.id, instruction.id, inner, place + (instruction.opcode == "conditional"))


class _Hoist:
    """Through one door."""

    def __init__(self, module: Module, door: _Door, given: AbstractSet[int], threads: int) -> None:
        self._module, self._door, self._given, self._threads = module, door, given, threads
        self._outer, self._inner = module.computations[door.outer], module.computations[door.inner]
        by_id = {instruction.id: instruction for instruction in self._outer.instructions[:]}
        self._entering = by_id[door.instruction]
        self._operand = by_id[self._entering.operand_ids[door.place]]
        self._graph = FlatGraph(module, self._inner)

    def run(self, packed: AbstractSet[str]) -> set[str]:
        """Move what can be; returns the names of packed weights outside."""
        colouring = colour(self._graph, self._given)
        if not colouring.border or not self._is_open():
            return set()
        fresh = max(instruction.id for instruction in self._outer.instructions[:]) + 1
        made = transplant(
            self._module,
            self._inner,
            lambda graph: colour(graph, self._given).border,
            {number: self._operand.operand_ids[number] for number in self._given},
            fresh,
            self._threads,
        )
        state = copy_of(self._operand)
        unread = self._unread(colouring)
        while len(unread) > len(made.results):
            made.instructions += _nothing(self._module, fresh + len(made.instructions))
            made.results.append(made.instructions[-1])
        places = [*unread, *range(len(state.operand_ids), len(state.operand_ids) + len(made.results))]
        for place, value in zip(places, made.results, strict=False):
            if place == len(state.operand_ids):
                state.operand_ids.append(value.id)
                state.shape.tuple_shapes.add()
            state.operand_ids[place] = value.id
            state.shape.tuple_shapes[place].CopyFrom(value.shape)
        state.id, state.name = fresh + len(made.instructions), self._module.fresh_name(self._operand.name)
        inner = self._inner_edit(colouring, places, state.shape)
        outer = self._outer_edit([*made.instructions, state])
        outer.computations = made.computations
        put_back(self._module, {self._inner.id: inner, self._outer.id: outer})
        is_loop = self._entering.opcode == "while"
        _retype(self._inner, state.shape, is_result=is_loop)
        for computation in self._conditions():
            _retype(computation, state.shape, is_result=False)
        self._graph.take_apart()
        return {value.name for value, node in zip(made.results, colouring.border, strict=False) if node.name in packed}

    def _is_open(self) -> bool:
        """Whether the tuple may become another one: nobody but the door passes it on as a whole."""
        if self._operand.opcode != "tuple" or sum(self._is_entered(i) for i in _all(self._module)) > 1:
            return False
        parameter = next(node for node in self._graph.nodes if node.opcode == "parameter")
        if any(user.opcode != "get-tuple-element" for user in parameter.users):
            return False
        if self._entering.opcode != "while":
            return True
        users = [i for i in self._outer.instructions[:] if self._entering.id in i.operand_ids[:]]
        is_whole = self._outer.root_id == self._entering.id or any(i.opcode != "get-tuple-element" for i in users)
        return not is_whole and self._graph.root.opcode == "tuple"

    def _is_entered(self, instruction: InstructionProto) -> bool:
        return self._inner.id in instruction.called_computation_ids[:]

    def _conditions(self) -> list[ComputationProto]:
        """What has the tuple for a parameter besides the inner computation: a loop's condition."""
        called = self._entering.called_computation_ids[1:] if self._entering.opcode == "while" else ()
        return [self._module.computations[identifier] for identifier in called]

    def _unread(self, colouring: Colouring) -> list[int]:
        """Given elements that nothing reads once all that is gone is gone."""
        is_loop = self._entering.opcode == "while"
        outside = [i for computation in self._conditions() for i in computation.instructions[:]]
        if is_loop:
            outside += [i for i in self._outer.instructions[:] if self._entering.id in i.operand_ids[:]]
        read = {i.tuple_index for i in outside if i.opcode == "get-tuple-element"}
        for node in filter(is_element, self._graph.nodes):
            users = [user for user in node.users if user not in colouring.gone]
            root = self._graph.root
            is_passed_on = is_loop and users == [root] and root.operands.count(node) == 1
            if users and not is_passed_on:
                read.add(node.proto.tuple_index)
        return sorted(self._given - read)

    def _inner_edit(self, colouring: Colouring, places: Sequence[int], state: ShapeProto) -> Edit:
        """The inner computation, which reads what was made outside."""
        graph = self._graph
        rebuilder = Rebuilder(self._module, graph, self._threads, covered=colouring.gone, results=colouring.border)
        parameter = next(node for node in graph.nodes if node.opcode == "parameter")

        def make() -> Node:
            for node, place in zip(colouring.border, places, strict=False):
                own = rebuilder.identifier(node)
                is_returned = _is_returned(node, graph.root)
                element = rebuilder.new(
                    "get-tuple-element", node.name, rebuilder.fresh_id() if is_returned else own, node
                )
                element.shape.CopyFrom(node.shape.to_proto())
                element.operand_ids.append(rebuilder.identifier(parameter))
                element.tuple_index = place
                rebuilder.place(element, node)
                if is_returned:
                    # Where it lies already is not where results lie: XLA puts those of all branches into one place.
                    copy = rebuilder.new("copy", "returned", own, node)
                    copy.shape.CopyFrom(element.shape)
                    copy.operand_ids.append(element.id)
                    rebuilder.place(copy, node)
            return graph.root

        edit = rebuilder.edit(make)
        edit.instructions = [copy_of(instruction) for instruction in edit.instructions]
        if self._entering.opcode == "while":
            self._pass_on(edit, rebuilder, set(places), state)
        return edit

    def _pass_on(self, edit: Edit, rebuilder: Rebuilder, places: AbstractSet[int], state: ShapeProto) -> None:
        """Have a loop's body return the elements in these places as they came."""
        *others, root = sorted(edit.instructions, key=lambda instruction: instruction.id == edit.root_id)
        parameter = next(instruction for instruction in others if instruction.opcode == "parameter")
        for place in sorted(place for place in places if place < len(state.tuple_shapes)):
            element = InstructionProto(opcode="get-tuple-element", id=rebuilder.fresh_id(), tuple_index=place)
            element.name = self._module.fresh_name("passed_on")
            element.shape.CopyFrom(state.tuple_shapes[place])
            element.operand_ids.append(parameter.id)
            others.append(element)
            if place == len(root.operand_ids):
                root.operand_ids.append(element.id)
            root.operand_ids[place] = element.id
        # Elements that are of another type by now, which nothing reads.
        read = {operand for instruction in (*others, root) for operand in instruction.operand_ids[:]}
        edit.instructions = [i for i in (*others, root) if i.opcode != "get-tuple-element" or i.id in read]

    def _outer_edit(self, new: Sequence[InstructionProto]) -> Edit:
        """The outer computation with what was hoisted, the new tuple last, right before the door."""
        instructions: list[InstructionProto] = []
        for instruction in self._outer.instructions[:]:
            if instruction.id == self._entering.id:
                entering = copy_of(instruction)
                entering.operand_ids[self._door.place] = new[-1].id
                if entering.opcode == "while":
                    entering.shape.CopyFrom(new[-1].shape)
                instructions += [*new, entering]
            else:
                instructions.append(instruction)
        read = {operand for i in instructions for operand in (*i.operand_ids[:], *i.control_predecessor_ids[:])}
        is_read = self._operand.id in read or self._operand.id == self._outer.root_id
        return Edit([i for i in instructions if is_read or i.id != self._operand.id], self._outer.root_id)


def _is_returned(node: Node, root: Node) -> bool:
    """Whether its buffer is, as it is, a part of the result."""
    return node is root or any(user.opcode in ("bitcast", "tuple") and _is_returned(user, root) for user in node.users)


def _nothing(module: Module, fresh: int) -> list[InstructionProto]:
    """A scalar for the place of what nobody reads any more; copied, for a loop carries no constants as they are."""
    constant = InstructionProto(opcode="constant", id=fresh, name=module.fresh_name("nothing"))
    constant.shape.CopyFrom(row_major("pred", ()).to_proto())
    constant.literal.shape.CopyFrom(constant.shape)
    constant.literal.preds.append(False)
    copy = InstructionProto(opcode="copy", id=fresh + 1, name=module.fresh_name("nothing"))
    copy.shape.CopyFrom(constant.shape)
    copy.operand_ids.append(fresh)
    return [constant, copy]


def _retype(computation: ComputationProto, state: ShapeProto, *, is_result: bool) -> None:
    """Give a computation's one parameter, and its result, the tuple's new type."""
    for instruction in computation.instructions[:]:
        if instruction.opcode == "parameter" or (is_result and instruction.id == computation.root_id):
            instruction.shape.CopyFrom(state)
    computation.program_shape.parameters[0].CopyFrom(state)
    if is_result:
        computation.program_shape.result.CopyFrom(state)


def _all(module: Module) -> Iterator[InstructionProto]:
    for computation in module.proto.computations[:]:
        yield from computation.instructions[:]
