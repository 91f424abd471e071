"""In-place stacks: a loop that reads one stack and writes another, changed by a few rows a slice, carries one.

XLA gives such a loop (a scan with each layer's cache as xs and as ys) a stack of zeros, copies each slice, changes the
copy, copies it into the other stack, and all of that into the donated buffer. Here the loop takes the stack that it
reads in place of the zeros, its buffer where that is donated or dead and a copy elsewhere, and changes the rows in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.buffer_uses import BufferUses
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.in_place_updates import writes_in_place
from hlo_dispatch.analysis.loop_indices import integer_of
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.analysis.peeling import is_widening
from hlo_dispatch.analysis.updated_stacks import UpdatedStack, find_updated_stacks
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of, tuple_shape
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.loop_state import can_change_state, placeholder, retype
from hlo_dispatch.passes.module_rewriter import ComputationRewriter
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported

_NEW_BUFFER = frozenset("broadcast concatenate convert copy custom-call dot fusion pad reshape transpose".split())
"""Opcodes of instructions whose results lie in buffers of their own."""


def update_stacks_in_place(module: Module, context: PassContext) -> set[int]:
    """Let every loop carry one stack that it changes, in place of one that it reads and one that it writes."""
    changed: set[int] = set()
    loops = [
        (computation.id, instruction.id)
        for computation, is_small in (module.control_flow_computations() if "while" in module.opcodes else ())
        if not is_small and "while" in module.opcodes_of(computation.id)
        for instruction in computation.instructions[:]
        if instruction.opcode == "while" and _may_have_stacks(instruction)
    ]
    for computation, loop in loops:
        with contextlib.suppress(RewriteUnsupported):  # a control dependency on one of the instructions
            changed |= _LoopRewriter(module, computation, loop, context).run()
    return changed


def _may_have_stacks(loop: InstructionProto) -> bool:
    """Whether two elements of the state have the same shape, with a slice for each iteration."""
    trips = trip_count(loop)
    if trips is None or trips < 2:
        return False
    shapes = [shape_of(element) for element in loop.shape.tuple_shapes[:]]
    stacks = [shape for shape in shapes if shape.dimensions[:1] == (trips,) and len(shape.dimensions) > 1]
    return len(set(stacks)) < len(stacks)


class _LoopRewriter:
    """Rewrites one loop, and its state in the computation around it."""

    def __init__(self, module: Module, caller: int, loop: int, context: PassContext) -> None:
        self._module, self._context, self._threads = module, context, context.threads
        self._caller = Editor(module, module.computations[caller])
        self._loop = self._caller.instructions[loop]
        self._state = self._caller.instructions[self._loop.operand_ids[0]]
        self._body, self._condition = (module.computations[called] for called in self._loop.called_computation_ids[:])

    def run(self) -> set[int]:
        """Rewrite; returns ids of the computations that changed.

        Raises:
            RewriteUnsupported: the body cannot be rewritten; nothing has changed.
        """
        graph = FlatGraph(self._module, self._body)
        try:
            if not can_change_state(self._module, self._caller, self._loop, 0, graph):
                return set()
            stacks = self._stacks(graph)
            if not stacks:
                return set()
            body = self._body_draft(graph, stacks)
        finally:
            graph.break_reference_cycles()
        sources = {stack.source.proto.tuple_index for stack in stacks}
        if not _release(body, sources):
            return set()
        state = self._replace_state(stacks)
        self._context.keep_stock(self._module)
        changed = commit(self._module, [body, self._caller])
        retype(self._body, state.shape, is_result=True)
        retype(self._condition, state.shape, is_result=False)
        return changed | {self._condition.id}

    def _stacks(self, graph: FlatGraph) -> list[UpdatedStack]:
        trips = trip_count(self._loop)
        if trips is None or graph.root.opcode != "tuple":
            return []
        read_by_condition = {i.tuple_index for i in self._condition.instructions[:] if i.opcode == "get-tuple-element"}
        return [
            stack
            for stack in find_updated_stacks(graph, trips, self._initial)
            if read_by_condition.isdisjoint((stack.source.proto.tuple_index, stack.target.proto.tuple_index))
        ]

    def _initial(self, number: int) -> int | None:
        """The integer constant with which an element of the state begins."""
        value = self._caller.instructions[self._state.operand_ids[number]]
        while value.opcode in ("copy", "bitcast"):
            value = self._caller.instructions[value.operand_ids[0]]
        return integer_of(value.literal, shape_of(value.shape).element_type) if value.opcode == "constant" else None

    # --- the body ---------------------------------------------------------------------------------

    def _body_draft(self, graph: FlatGraph, stacks: Sequence[UpdatedStack]) -> Editor:
        covered = {node for s in stacks for node in (*s.reads, *s.updates, *s.changed, *s.inside, s.write)}
        results = [node for node in graph.nodes if node in covered and not covered.issuperset(node.users)]
        rewriter = ComputationRewriter(self._module, graph, self._threads, covered=covered, results=results)

        def emit() -> Node:
            for stack in stacks:
                _emit_updates(rewriter, stack)
                source = rewriter.identifier(stack.target)
                for read in results:
                    if read in stack.reads:
                        operands = [source, *map(rewriter.identifier, read.operands[1:])]
                        rewriter.near(read).clone(read.proto, operands, identifier=rewriter.identifier(read))
                    elif read in stack.changed:
                        _emit_changed_slice(rewriter, read, stack)
            return graph.root

        return rewriter.rewrite(emit)

    # --- the computation around the loop ----------------------------------------------------------

    def _replace_state(self, stacks: Sequence[UpdatedStack]) -> InstructionProto:
        """Give the loop the stacks that it read as those that it changes; returns its new state."""
        caller, loop = self._caller, self._loop
        operands, shapes = self._state.operand_ids[:], self._state.shape.tuple_shapes[:]
        builder = caller.before(loop.id, self._state)
        dead = {self._state.id}
        for stack in stacks:
            source, target = stack.source.proto.tuple_index, stack.target.proto.tuple_index
            value = self._take_buffer(operands[source], source, target)
            if value is None:
                value = builder.make("copy", shapes[source], operands[source], stem="stack_copy").id
            dead.add(operands[target])
            operands[target] = value
        for stack in stacks:
            source = stack.source.proto.tuple_index
            self._replace_results(source, self._state.operand_ids[source])
            element = placeholder(builder)
            operands[source : source + 1], shapes[source : source + 1] = [element.id], [element.shape]
        state = builder.tuple(operands, shapes, self._state.name)
        caller.set_operands(loop.id, [state.id])
        caller.mutable(loop.id).shape.CopyFrom(tuple_shape(shapes))
        self._remove_dead(dead)
        return state

    def _take_buffer(self, value: int, source: int, target: int) -> int | None:
        """Let the loop change this value's own buffer, or that of the value that it is a copy of, which is returned.

        None, and no change, where something else may read it.
        """
        caller, state = self._caller, self._state
        instruction = caller.instructions[value]
        is_read = any(caller.users(element) for element in self._results(source))
        if caller.users(value) != [state.id] or state.operand_ids[:].count(value) > 1 or is_read:
            return None
        if instruction.opcode == "copy" and self._is_needless(instruction):
            (copied,) = instruction.operand_ids[:]
            if self._return_in_place(copied, target):
                return copied
        if instruction.opcode in _NEW_BUFFER:
            return None if writes_in_place(self._module, instruction) else value
        return value if self._return_in_place(value, target) else None

    def _is_needless(self, copy: InstructionProto) -> bool:
        """Whether nothing but this copy reads a value, and nothing waits for the copy."""
        caller = self._caller
        (copied,) = copy.operand_ids[:]
        is_waited_for = any(copy.id in i.control_predecessor_ids[:] for i in caller.instructions.values())
        is_same = caller.instructions[copied].shape == copy.shape
        return is_same and caller.users(copied) == [copy.id] and not copy.control_predecessor_ids and not is_waited_for

    def _return_in_place(self, value: int, target: int) -> bool:
        """Return the changed stack in the buffer of the parameter that it was; False where the caller keeps that."""
        caller = self._caller
        path = _path(caller, value)
        uses = BufferUses(caller.instructions, caller.users)
        if path is None or uses.parameter_elements(path) != {value}:
            return False
        for parameter, number in BufferAliasing(self._module).certain_pairs(caller.computation):
            if parameter == path and self._return_element(number, target):
                return True
        return False

    def _return_element(self, number: int | None, target: int) -> bool:
        """Make the changed stack itself this result, if a copy of it is; False where another value is."""
        caller, root = self._caller, self._caller.root
        if number is not None and root.opcode != "tuple":
            return False
        result = root.id if number is None else root.operand_ids[number]
        elements = self._results(target)
        instruction = caller.instructions[result]
        if result in elements:
            return True
        if instruction.opcode != "copy" or instruction.operand_ids[0] not in elements:
            return False
        element = caller.instructions[instruction.operand_ids[0]]
        if element.shape != instruction.shape:
            return False  # in another layout
        if any(map(self._is_kept_or_overwritten, elements)):
            return False  # the copy keeps what that would be
        if number is None:
            caller.root_id = element.id
        else:
            caller.set_operand(root.id, number, element.id)
        return True

    def _is_kept_or_overwritten(self, value: int) -> bool:
        """Whether a result, the state of a loop or an in-place update has the value's buffer."""
        caller = self._caller
        names = BufferUses(caller.instructions, caller.users).aliases(value)
        users = [caller.instructions[user] for name in names for user in caller.users(name)]
        return caller.root_id in names or any(u.opcode == "tuple" or writes_in_place(self._module, u) for u in users)

    def _results(self, number: int) -> list[int]:
        """Ids of the get-tuple-elements that are this element of the loop's result."""
        users = self._caller.users(self._loop.id)
        return [user for user in users if self._caller.instructions[user].tuple_index == number]

    def _replace_results(self, number: int, value: int) -> None:
        """Replace an element of the loop's result by the value that the loop did not change."""
        for element in self._results(number):
            self._caller.replace_all_uses_with(element, value)
            self._caller.redirect_control_dependencies({element: value})
            self._caller.erase(element)

    def _remove_dead(self, values: AbstractSet[int]) -> None:
        """Erase these values, copies that they are of other ones, and copies of the loop's results, where dead."""
        caller = self._caller
        copies = {i for i, proto in caller.instructions.items() if proto.opcode in ("copy", "broadcast")}
        caller.remove_dead_code({i for i in values if caller.instructions[i].opcode == "tuple"} | copies)


def _emit_updates(rewriter: ComputationRewriter, stack: UpdatedStack) -> None:
    """Emit the updates of the slice as updates of the stack."""
    whole, last = stack.target.shape, stack.updates[-1]
    index, value = rewriter.identifier(stack.index), rewriter.identifier(stack.target)
    for update in stack.updates:
        builder, starts = rewriter.near(update), update.operands[2:]
        has_index = len(update.shape.dimensions) == len(whole.dimensions)
        shape = replace(update.operands[1].shape, element_type=whole.element_type)
        identifier = _emit_rows(rewriter, update, shape)
        if not has_index:
            identifier = builder.make("bitcast", _stacked(shape), identifier).id
        value = builder.make(
            "dynamic-update-slice",
            whole,
            value,
            identifier,
            index,
            *(rewriter.identifier(start) for start in starts[has_index:]),
            identifier=rewriter.identifier(stack.write) if update is last else None,
        ).id


def _emit_rows(rewriter: ComputationRewriter, update: Node, shape: Shape) -> int:
    """Emit the rows that an update writes; returns the id of those in the stack's type."""
    rows = update.operands[1]
    if is_widening(rows) and rows.operands[0].shape == shape:
        rows = rows.operands[0]
    if rows.shape == shape:
        return rewriter.identifier(rows)
    return rewriter.near(update).make("convert", shape, rewriter.identifier(rows), stem="rounded_rows").id


def _emit_changed_slice(rewriter: ComputationRewriter, node: Node, stack: UpdatedStack) -> None:
    """Emit a slice of the changed stack in place of a value."""
    write = stack.write
    shape = Shape(node.shape.element_type, (1, *write.shape.dimensions[1:]), write.shape.minor_to_major)
    builder, identifier = rewriter.near(node), rewriter.identifier(node)
    is_same = shape == node.shape
    operands = [rewriter.identifier(operand) for operand in (write, *write.operands[2:])]
    made = builder.make("dynamic-slice", shape, *operands, identifier=identifier if is_same else None)
    made.dynamic_slice_sizes.extend(shape.dimensions)
    if not is_same:
        builder.make("bitcast", node.shape, made.id, identifier=identifier)


def _stacked(shape: Shape) -> Shape:
    """The shape of these elements with a dimension of size 1 in front."""
    order = (*(dimension + 1 for dimension in shape.minor_to_major), 0)
    return Shape(shape.element_type, (1, *shape.dimensions), order, packed_bits=shape.packed_bits)


def _release(body: Editor, sources: AbstractSet[int]) -> bool:
    """Make these elements of the state scalars that the body returns; False where something else reads one."""
    scalar = Shape("pred", (), ()).to_proto()
    for identifier, instruction in list(body.instructions.items()):
        if instruction.opcode == "get-tuple-element" and instruction.tuple_index in sources:
            if body.instructions[instruction.operand_ids[0]].opcode == "parameter":
                if any(user != body.root_id for user in body.users(identifier)):
                    return False
                body.mutable(identifier).shape.CopyFrom(scalar)
    return True


def _path(caller: Editor, identifier: int) -> tuple[int, ...] | None:
    """The number of a parameter, then a tuple index, where a value is this element and nothing reads the tuple."""
    instruction = caller.instructions[identifier]
    if instruction.opcode == "parameter":
        return (instruction.parameter_number,)
    if instruction.opcode != "get-tuple-element":
        return None
    parameter = caller.instructions[instruction.operand_ids[0]]
    users = [caller.instructions[user] for user in caller.users(parameter.id)]
    if parameter.opcode != "parameter" or any(user.opcode != "get-tuple-element" for user in users):
        return None
    return parameter.parameter_number, instruction.tuple_index
