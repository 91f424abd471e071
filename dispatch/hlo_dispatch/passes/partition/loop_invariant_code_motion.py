"""Loop-invariant code motion: hoists static values out of loop bodies and branches, those of frozen weights into the
entry computation, those of a loop's weights to the front of the loop.

A hoisted value becomes an element of the tuple that the loop or branch takes, in place of an element that is dead
afterwards: a loop does not carry weights that it no longer reads. Inner loops come first, so that a value can leave a
whole loop nest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.binding_time import control_flow_callees, is_parameter_element, static_inputs_by_computation
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.analysis.overwritten_parameters import overwritten_elements
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.passes.cloned_values import clone_into_caller
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.loop_state import can_change_state, placeholder, replace_elements, retype
from hlo_dispatch.passes.module_rewriter import ComputationRewriter
from hlo_dispatch.passes.partition.frontier import Partition, find_partition
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported


def hoist_loop_invariants(module: Module, context: PassContext) -> set[int]:
    """Hoist the static values of loops and branches, where no instruction waits for them."""
    changed: set[int] = set()
    frozen = context.frozen | context.widened
    if not (frozen or context.loop_weights):
        return changed
    with flat_graphs(module) as graph_of:
        of = context.loop_weights, context.static_rule
        static_inputs = static_inputs_by_computation(module, context.frozen, graph_of, *of)
        narrow = static_inputs_by_computation(module, frozen, graph_of, *of) if context.widened else static_inputs
    for call_site in list(_call_sites(module, module.entry)) if len(narrow) > 1 else ():
        if narrow.get(call_site.callee):
            inputs = static_inputs.get(call_site.callee, frozenset()), narrow[call_site.callee]
            with contextlib.suppress(RewriteUnsupported):  # a control dependency on one of them
                changed |= _Hoister(module, call_site, *inputs, context).run(context.prepacked)
    return changed


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

    def __init__(
        self,
        module: Module,
        call_site: _CallSite,
        static_inputs: AbstractSet[int],
        narrow: AbstractSet[int],
        context: PassContext,
    ) -> None:
        """
        Args:
            narrow: the static inputs with those of narrower stored types, of which only prepacked weights are hoisted.
        """
        self._module, self._call_site = module, call_site
        self._static_inputs, self._narrow = static_inputs, narrow
        self._threads, self._rule = context.threads, context.static_rule
        self._callee = module.computations[call_site.callee]
        self._caller = Editor(module, module.computations[call_site.caller])
        self._control_flow = self._caller.instructions[call_site.instruction]
        self._operand = self._caller.instructions[self._control_flow.operand_ids[call_site.operand_number]]
        self._is_loop = self._control_flow.opcode == "while"
        self._graph = FlatGraph(module, self._callee)

    def run(self, prepacked: set[str]) -> set[int]:
        """Hoist; returns ids of the computations that changed.

        Args:
            prepacked: names of the instructions whose values are prepacked weights; those of hoisted ones are added.

        Raises:
            RewriteUnsupported: an instruction has a control dependency on a hoisted one; nothing has changed.
        """
        partition = self._partition(prepacked)
        number = self._call_site.operand_number
        if not partition.frontier or not can_change_state(
            self._module, self._caller, self._control_flow, number, self._graph
        ):
            return set()
        elements = self._operand.operand_ids[:]
        values = clone_into_caller(
            self._module, self._graph, partition.frontier, self._caller, self._control_flow.id, elements, self._threads
        )
        names = {v.name for v, node in zip(values, partition.frontier, strict=True) if node.name in prepacked}
        dead_elements = self._dead_elements(partition)
        while len(dead_elements) > len(values):
            values.append(placeholder(self._caller.before(self._control_flow.id)))
        count = len(self._operand.operand_ids)
        tuple_indices = [*dead_elements, *range(count, count + len(values) - len(dead_elements))]
        hoisted = dict(zip(tuple_indices, values, strict=True))
        state = replace_elements(self._caller, self._control_flow, number, hoisted)
        self._caller.remove_dead_code()
        callee = self._callee_draft(partition, tuple_indices, state.shape)
        prepacked |= names
        changed = commit(self._module, [callee, self._caller])
        self._graph.break_reference_cycles()
        retype(self._callee, state.shape, is_result=self._is_loop)
        for computation in self._loop_conditions():
            retype(computation, state.shape, is_result=False)
            changed.add(computation.id)
        self._copy_overwritten(tuple_indices[: len(partition.frontier)])
        return changed

    def _partition(self, prepacked: AbstractSet[str]) -> Partition:
        """The static values, and of those that depend on narrow inputs, too, the prepacked weights."""
        found = find_partition(self._graph, self._static_inputs, self._rule)
        if self._narrow == self._static_inputs:
            return found
        with_narrow = find_partition(self._graph, self._narrow, self._rule)
        frontier = set(found.frontier)
        frontier.update(node for node in with_narrow.frontier if node.name in prepacked)
        # What only they are computed from is not computed inside any more.
        removed = {*found.removed, *frontier}
        for node in sorted(with_narrow.removed, key=lambda node: -node.index):
            if node.users and removed.issuperset(node.users):
                removed.add(node)
        return Partition(tuple(sorted(frontier, key=lambda node: node.index)), removed)

    def _users(self) -> list[InstructionProto]:
        """Users of the loop's or the branch's result."""
        return [self._caller.instructions[user] for user in self._caller.users(self._control_flow.id)]

    def _loop_conditions(self) -> list[ComputationProto]:
        """Computations that take the same tuple besides the callee: a loop's condition."""
        called = self._control_flow.called_computation_ids[1:] if self._is_loop else ()
        return [self._module.computations[identifier] for identifier in called]

    def _dead_elements(self, partition: Partition) -> list[int]:
        """Static tuple elements that are dead after hoisting."""
        outside = [i for computation in self._loop_conditions() for i in computation.instructions[:]]
        if self._is_loop:
            outside += self._users()
        read = {i.tuple_index for i in outside if i.opcode == "get-tuple-element"}
        for node in filter(is_parameter_element, self._graph.nodes):
            users = [user for user in node.users if user not in partition.removed]
            root = self._graph.root
            is_returned_unchanged = self._is_loop and users == [root] and root.operands.count(node) == 1
            if users and not is_returned_unchanged:
                read.add(node.proto.tuple_index)
        return sorted(self._narrow - read)

    def _callee_draft(self, partition: Partition, tuple_indices: Sequence[int], state: ShapeProto) -> Editor:
        """The callee, which reads the hoisted values from its tuple."""
        graph, module = self._graph, self._module
        rewriter = ComputationRewriter(
            module, graph, self._threads, covered=partition.removed, results=partition.frontier
        )
        parameter = next(node for node in graph.nodes if node.opcode == "parameter")

        def emit() -> Node:
            for node, index in zip(partition.frontier, tuple_indices, strict=False):
                rewriter.near(node).get_tuple_element(
                    rewriter.identifier(parameter), index, node.shape, node.name, rewriter.identifier(node)
                )
            return graph.root

        draft = rewriter.rewrite(emit)
        if self._is_loop:
            _return_unchanged(draft, tuple_indices, state)
        return draft

    def _copy_overwritten(self, tuple_indices: Sequence[int]) -> None:
        """Copy those of these elements of the callee's tuple that it would overwrite, or return in another's buffer."""
        overwritten = overwritten_elements(self._module, self._callee, tuple_indices, is_loop=self._is_loop)
        if not overwritten:
            return
        draft = Editor(self._module, self._callee)
        (parameter,) = draft.parameters()
        for element in map(draft.instructions.__getitem__, draft.users(parameter.id)):
            index = element.tuple_index
            is_returned_unchanged = self._is_loop and draft.root.operand_ids[index] == element.id
            if index in overwritten and not is_returned_unchanged:
                copy = draft.after(element.id).make("copy", element.shape, element.id, stem="own_copy")
                draft.replace_all_uses_with(element.id, copy.id)
        commit(self._module, [draft])


def _return_unchanged(draft: Editor, tuple_indices: Sequence[int], state: ShapeProto) -> None:
    """Return these tuple elements of a loop body unchanged."""
    (parameter,) = draft.parameters()
    operands = draft.root.operand_ids[:]
    for index in sorted(tuple_indices):
        element = draft.after(draft.root_id).get_tuple_element(
            parameter.id, index, state.tuple_shapes[index], "unchanged_element"
        )
        operands[index:] = [element.id, *operands[index + 1 :]]
    draft.set_operands(draft.root_id, operands)
    # Dead elements, whose type has changed.
    draft.remove_dead_code({i for i, proto in draft.instructions.items() if proto.opcode == "get-tuple-element"})
