"""Loop-invariant code motion: hoists static values out of loop bodies and branches into the entry computation.

A hoisted value becomes an element of the tuple that the loop or branch takes, in place of an element that is dead
afterwards: a loop does not carry weights that it no longer reads. Inner loops come first, so that a value can leave a
whole loop nest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.binding_time import control_flow_callees, is_parameter_element, static_inputs_by_computation
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.passes.edit import replace_computations
from hlo_dispatch.passes.module_rewriter import ComputationRewriter, Edit
from hlo_dispatch.passes.partition.clone_into_parent import clone_values
from hlo_dispatch.passes.partition.frontier import Partition, find_partition


def hoist_loop_invariants(
    serialized: bytes, frozen: AbstractSet[int], threads: int, prepacked: AbstractSet[str]
) -> tuple[bytes, set[str]]:
    """Hoist the static values of loops and branches to the entry computation.

    Args:
        serialized: an optimized module.
        frozen: numbers of the entry's frozen parameters.
        threads: number of XLA's threads.
        prepacked: names of the instructions whose results are prepacked weights.

    Returns:
        the module, and the names of those instructions in it.

    Raises:
        ModuleError: the bytes are not a module.
        RewriteUnsupported: an instruction has a control dependency on a hoisted one.
    """
    module = Module.from_bytes(serialized)
    names = set(prepacked)
    with flat_graphs(module) as graph_of:
        static_inputs = static_inputs_by_computation(module, frozen, graph_of)
    if len(static_inputs) == 1:
        return serialized, names
    for call_site in list(_call_sites(module, module.entry)):
        if static_inputs.get(call_site.callee):
            names |= _Hoister(module, call_site, static_inputs[call_site.callee], threads).run(names)
    return module.to_bytes(), names


@dataclass(frozen=True)
class _CallSite:
    """A control-flow edge: an instruction that runs a computation as a loop body or a branch."""

    caller: int
    """Id of the calling computation."""
    instruction: int
    """Id of the `while` or `conditional`."""
    callee: int
    """Id of the called computation."""
    operand_number: int
    """Number of the operand that becomes the callee's parameter."""


def _call_sites(module: Module, computation: ComputationProto) -> Iterator[_CallSite]:
    """All call sites below a computation, innermost first."""
    for instruction in computation.instructions[:]:
        for operand_number, (callee, _) in enumerate(control_flow_callees(instruction)):
            yield from _call_sites(module, module.computations[callee])
            yield _CallSite(
                computation.id, instruction.id, callee, operand_number + (instruction.opcode == "conditional")
            )


class _Hoister:
    """Hoists the static values of one callee into its caller."""

    def __init__(self, module: Module, call_site: _CallSite, static_inputs: AbstractSet[int], threads: int) -> None:
        self._module, self._call_site, self._static_inputs, self._threads = module, call_site, static_inputs, threads
        self._caller, self._callee = module.computations[call_site.caller], module.computations[call_site.callee]
        by_id = {instruction.id: instruction for instruction in self._caller.instructions[:]}
        self._control_flow = by_id[call_site.instruction]
        self._operand = by_id[self._control_flow.operand_ids[call_site.operand_number]]
        self._graph = FlatGraph(module, self._callee)

    def run(self, prepacked: AbstractSet[str]) -> set[str]:
        """Hoist; returns the names of the hoisted prepacked weights."""
        partition = find_partition(self._graph, self._static_inputs)
        if not partition.frontier or not self._can_change_tuple():
            return set()
        fresh = max(instruction.id for instruction in self._caller.instructions[:]) + 1
        clones = clone_values(
            self._module,
            self._callee,
            lambda graph: find_partition(graph, self._static_inputs).frontier,
            {number: self._operand.operand_ids[number] for number in self._static_inputs},
            fresh,
            self._threads,
        )
        state = copy_of(self._operand)
        dead_elements = self._dead_elements(partition)
        while len(dead_elements) > len(clones.results):
            clones.instructions += _placeholder(self._module, fresh + len(clones.instructions))
            clones.results.append(clones.instructions[-1])
        tuple_indices = [*dead_elements, *range(len(state.operand_ids), len(state.operand_ids) + len(clones.results))]
        for index, value in zip(tuple_indices, clones.results, strict=False):
            if index == len(state.operand_ids):
                state.operand_ids.append(value.id)
                state.shape.tuple_shapes.add()
            state.operand_ids[index] = value.id
            state.shape.tuple_shapes[index].CopyFrom(value.shape)
        state.id, state.name = fresh + len(clones.instructions), self._module.fresh_name(self._operand.name)
        callee = self._callee_edit(partition, tuple_indices, state.shape)
        caller = self._caller_edit([*clones.instructions, state])
        caller.computations = clones.computations
        replace_computations(self._module, {self._callee.id: callee, self._caller.id: caller})
        is_loop = self._control_flow.opcode == "while"
        _retype(self._callee, state.shape, is_result=is_loop)
        for computation in self._loop_conditions():
            _retype(computation, state.shape, is_result=False)
        self._graph.break_reference_cycles()
        return {
            value.name
            for value, node in zip(clones.results, partition.frontier, strict=False)
            if node.name in prepacked
        }

    def _can_change_tuple(self) -> bool:
        """Whether the tuple type may change: no other user of it reads the whole tuple."""
        if self._operand.opcode != "tuple" or sum(self._calls_callee(i) for i in _all_instructions(self._module)) > 1:
            return False
        parameter = next(node for node in self._graph.nodes if node.opcode == "parameter")
        if any(user.opcode != "get-tuple-element" for user in parameter.users):
            return False
        if self._control_flow.opcode != "while":
            return True
        users = [i for i in self._caller.instructions[:] if self._control_flow.id in i.operand_ids[:]]
        escapes = self._caller.root_id == self._control_flow.id or any(i.opcode != "get-tuple-element" for i in users)
        return not escapes and self._graph.root.opcode == "tuple"

    def _calls_callee(self, instruction: InstructionProto) -> bool:
        return self._callee.id in instruction.called_computation_ids[:]

    def _loop_conditions(self) -> list[ComputationProto]:
        """Computations that take the same tuple besides the callee: a loop's condition."""
        called = self._control_flow.called_computation_ids[1:] if self._control_flow.opcode == "while" else ()
        return [self._module.computations[identifier] for identifier in called]

    def _dead_elements(self, partition: Partition) -> list[int]:
        """Static tuple elements that are dead after hoisting."""
        is_loop = self._control_flow.opcode == "while"
        outside = [i for computation in self._loop_conditions() for i in computation.instructions[:]]
        if is_loop:
            outside += [i for i in self._caller.instructions[:] if self._control_flow.id in i.operand_ids[:]]
        read = {i.tuple_index for i in outside if i.opcode == "get-tuple-element"}
        for node in filter(is_parameter_element, self._graph.nodes):
            users = [user for user in node.users if user not in partition.removed]
            root = self._graph.root
            is_returned_unchanged = is_loop and users == [root] and root.operands.count(node) == 1
            if users and not is_returned_unchanged:
                read.add(node.proto.tuple_index)
        return sorted(self._static_inputs - read)

    def _callee_edit(self, partition: Partition, tuple_indices: Sequence[int], state: ShapeProto) -> Edit:
        """The callee, which reads the hoisted values from its tuple."""
        graph = self._graph
        rewriter = ComputationRewriter(
            self._module, graph, self._threads, covered=partition.removed, results=partition.frontier
        )
        parameter = next(node for node in graph.nodes if node.opcode == "parameter")

        def emit() -> Node:
            for node, index in zip(partition.frontier, tuple_indices, strict=False):
                result_id = rewriter.identifier(node)
                is_returned = _is_returned(node, graph.root)
                element = rewriter.new(
                    "get-tuple-element", node.name, rewriter.fresh_id() if is_returned else result_id, node
                )
                element.shape.CopyFrom(node.shape.to_proto())
                element.operand_ids.append(rewriter.identifier(parameter))
                element.tuple_index = index
                rewriter.place(element, node)
                if is_returned:
                    # XLA assigns the results of all branches to one buffer; the hoisted value has another one.
                    copy = rewriter.new("copy", "returned_copy", result_id, node)
                    copy.shape.CopyFrom(element.shape)
                    copy.operand_ids.append(element.id)
                    rewriter.place(copy, node)
            return graph.root

        edit = rewriter.edit(emit)
        edit.instructions = [copy_of(instruction) for instruction in edit.instructions]
        if self._control_flow.opcode == "while":
            self._return_unchanged(edit, rewriter, set(tuple_indices), state)
        return edit

    def _return_unchanged(
        self, edit: Edit, rewriter: ComputationRewriter, tuple_indices: AbstractSet[int], state: ShapeProto
    ) -> None:
        """Return these tuple elements of a loop body unchanged."""
        *others, root = sorted(edit.instructions, key=lambda instruction: instruction.id == edit.root_id)
        parameter = next(instruction for instruction in others if instruction.opcode == "parameter")
        for index in sorted(index for index in tuple_indices if index < len(state.tuple_shapes)):
            element = InstructionProto(opcode="get-tuple-element", id=rewriter.fresh_id(), tuple_index=index)
            element.name = self._module.fresh_name("unchanged_element")
            element.shape.CopyFrom(state.tuple_shapes[index])
            element.operand_ids.append(parameter.id)
            others.append(element)
            if index == len(root.operand_ids):
                root.operand_ids.append(element.id)
            root.operand_ids[index] = element.id
        # Dead elements, whose type has changed.
        read = {operand for instruction in (*others, root) for operand in instruction.operand_ids[:]}
        edit.instructions = [i for i in (*others, root) if i.opcode != "get-tuple-element" or i.id in read]

    def _caller_edit(self, hoisted: Sequence[InstructionProto]) -> Edit:
        """The caller with the hoisted values, and then the new tuple, right before the call site."""
        instructions: list[InstructionProto] = []
        for instruction in self._caller.instructions[:]:
            if instruction.id == self._control_flow.id:
                control_flow = copy_of(instruction)
                control_flow.operand_ids[self._call_site.operand_number] = hoisted[-1].id
                if control_flow.opcode == "while":
                    control_flow.shape.CopyFrom(hoisted[-1].shape)
                instructions += [*hoisted, control_flow]
            else:
                instructions.append(instruction)
        read = {operand for i in instructions for operand in (*i.operand_ids[:], *i.control_predecessor_ids[:])}
        is_read = self._operand.id in read or self._operand.id == self._caller.root_id
        return Edit([i for i in instructions if is_read or i.id != self._operand.id], self._caller.root_id)


def _is_returned(node: Node, root: Node) -> bool:
    """Whether its buffer is the result or an element of it."""
    return node is root or any(user.opcode in ("bitcast", "tuple") and _is_returned(user, root) for user in node.users)


def _placeholder(module: Module, fresh: int) -> list[InstructionProto]:
    """A scalar in place of a dead tuple element; copied, because XLA does not let a loop carry a constant."""
    constant = InstructionProto(opcode="constant", id=fresh, name=module.fresh_name("placeholder"))
    constant.shape.CopyFrom(row_major("pred", ()).to_proto())
    constant.literal.shape.CopyFrom(constant.shape)
    constant.literal.preds.append(False)
    copy = InstructionProto(opcode="copy", id=fresh + 1, name=module.fresh_name("placeholder"))
    copy.shape.CopyFrom(constant.shape)
    copy.operand_ids.append(fresh)
    return [constant, copy]


def _retype(computation: ComputationProto, state: ShapeProto, *, is_result: bool) -> None:
    """Set the new tuple type on a computation's parameter, and on its result."""
    for instruction in computation.instructions[:]:
        if instruction.opcode == "parameter" or (is_result and instruction.id == computation.root_id):
            instruction.shape.CopyFrom(state)
    computation.program_shape.parameters[0].CopyFrom(state)
    if is_result:
        computation.program_shape.result.CopyFrom(state)


def _all_instructions(module: Module) -> Iterator[InstructionProto]:
    for computation in module.proto.computations[:]:
        yield from computation.instructions[:]
