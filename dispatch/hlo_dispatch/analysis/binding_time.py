"""Binding-time analysis: classifies a module's values as static (computable before a call) or dynamic.

A static value depends on frozen parameters and constants only. Loop bodies and branches are separate computations: a
loop-invariant element of a body's tuple is static inside where it is static outside, and where it is one of the loop's
weights, which are preprocessed in front of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType

from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node
from hlo_dispatch.analysis.in_place_updates import variant_elements
from hlo_dispatch.analysis.stacked_slices import slices_of
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ELEMENTWISE, FORWARDS, LOOP_FUSIBLE, PURE_WITH_FIELDS, SHIFTS
from hlo_dispatch.ir.schema import InstructionProto

# Deterministic opcodes without side effects. (A fusion in a flat view is one that was not expanded.)
_PURE = ELEMENTWISE | LOOP_FUSIBLE | PURE_WITH_FIELDS | {
    "bitcast-convert", "cholesky", "complex", "count-leading-zeros", "fft", "imag", INSERTED_COPY, "map", "popcnt",
    "real", "remainder", "scatter", "sort", "topk", "triangular-solve", "tuple",
}  # fmt: skip
_CALLS = frozenset(("call", "conditional", "fusion", "while"))
# Elementwise, conversions and data movement.
_FOLDABLE = ELEMENTWISE | SHIFTS | frozenset(
    "bitcast bitcast-convert broadcast concatenate constant copy dynamic-slice fusion gather get-tuple-element iota "
    "pad reduce-precision reshape reverse slice transpose tuple".split()
) | {INSERTED_COPY}  # fmt: skip


@dataclass(frozen=True)
class StaticRule:
    """Which instructions whose operands are static are static, too."""

    opcodes: AbstractSet[str]
    call_targets: AbstractSet[str] | None = None
    """Targets of such custom-calls; None: every one without side effects."""
    includes_results: bool = True
    """Whether a result of the entry, what only results depend on, and what depends on a result may be static."""

    def admits(self, proto: InstructionProto, opcode: str) -> bool:
        """Whether the instruction may be static; those of a computation that it calls must be, too."""
        if proto.control_predecessor_ids:
            return False
        if opcode != "custom-call":
            return opcode in self.opcodes
        targets = self.call_targets
        return not proto.custom_call_has_side_effect and (targets is None or proto.custom_call_target in targets)


PURE = StaticRule(_PURE | _CALLS)
"""Everything deterministic."""


def weights_rule(prepack_targets: AbstractSet[str]) -> StaticRule:
    """The rule of parameters that may be activations as well as weights: what a call computes is computed by each call.

    Weights are moved, converted, folded elementwise and prepacked. No result, anchor op, loop or reduction is static.
    """
    return StaticRule(_FOLDABLE, prepack_targets, includes_results=False)


NO_WEIGHTS: Mapping[int, AbstractSet[int]] = MappingProxyType({})


def static_values(graph: FlatGraph, static_inputs: AbstractSet[int], rule: StaticRule = PURE) -> set[Node]:
    """Static values: they depend on static inputs and constants only, and on at least one that is no scalar.

    Args:
        static_inputs: numbers of the entry's frozen parameters; in another computation, indexes of the static
            elements of its one parameter, a tuple (`static_inputs_by_computation`).
    """
    is_static_input = (
        _is_frozen if graph.computation.id == graph.module.proto.entry_computation_id else _is_static_element
    )
    pure: set[Node] = set()
    static: set[Node] = set()
    for node in graph.nodes:
        if is_static_input(node, static_inputs):
            static.add(node)
        elif node.opcode in ("constant", "iota"):
            pure.add(node)
            if node.opcode == "constant" and node.shape.elements > 1:
                static.add(node)
        elif node.operands and all(operand in static or operand in pure for operand in node.operands):
            if is_pure(graph.module, node.proto, node.opcode, rule):
                pure.add(node)
                if any(operand in static for operand in node.operands):
                    static.add(node)
    is_entry = graph.computation.id == graph.module.proto.entry_computation_id
    return static if rule.includes_results or not is_entry else _without_results(graph, static)


def _without_results(graph: FlatGraph, static: AbstractSet[Node]) -> set[Node]:
    """The static values that are no results, which something besides results depends on, and the static inputs."""
    results = {node for node in _results(graph) if node in static and node.operands}
    dynamic = {graph.root, *results}
    for node in sorted(static, key=lambda node: -node.index):
        if node.operands and node.users and dynamic.issuperset(node.users):
            dynamic.add(node)
    # What a result is an operand of is computed from it.
    for node in sorted(static, key=lambda node: node.index):
        if not results.isdisjoint(node.operands):
            results.add(node)
    dynamic |= results
    return {node for node in static if not node.operands or node not in dynamic}


def _results(graph: FlatGraph) -> Iterator[Node]:
    """The computation's results, and the values that are in the same memory."""
    pending = [graph.root]
    while pending:
        node = pending.pop()
        yield node
        if node.opcode in FORWARDS:
            pending += node.operands


def _is_frozen(node: Node, static_inputs: AbstractSet[int]) -> bool:
    return node.opcode == "parameter" and node.proto.parameter_number in static_inputs


def _is_static_element(node: Node, static_inputs: AbstractSet[int]) -> bool:
    return is_parameter_element(node) and node.proto.tuple_index in static_inputs


def is_pure(module: Module, proto: InstructionProto, opcode: str, rule: StaticRule = PURE) -> bool:
    """Whether the instruction is deterministic and has no side effects, and a rule admits all of it."""
    pending, called = [(proto, opcode)], set[int]()
    while pending:
        proto, opcode = pending.pop()
        if not rule.admits(proto, opcode):
            return False
        for computation in set(proto.called_computation_ids[:]) - called if opcode in _CALLS else ():
            called.add(computation)
            inner = module.computations[computation].instructions[:]
            pending += [(i, i.opcode) for i in inner if i.opcode not in ("parameter", "constant", "iota")]
    return True


def is_parameter_element(node: Node) -> bool:
    """Whether the node is an element of the computation's tuple parameter."""
    return node.opcode == "get-tuple-element" and node.operands[0].opcode == "parameter"


def static_inputs_by_computation(
    module: Module,
    frozen: AbstractSet[int],
    graph_of: Callable[[int], FlatGraph],
    loop_weights: Mapping[int, AbstractSet[int]] = NO_WEIGHTS,
    rule: StaticRule = PURE,
) -> Mapping[int, AbstractSet[int]]:
    """Id of the entry, of each loop body and of each branch → its static inputs, as for `static_values`.

    Args:
        frozen: numbers of the entry's frozen parameters.
        graph_of: id of a computation → its flat view.
        loop_weights: id of a loop's body → invariant elements of its state that are static inside in any case.
    """
    found: dict[int, AbstractSet[int]] = {module.entry.id: frozen}
    pending = [module.entry.id]
    while pending:
        identifier = pending.pop()
        graph = graph_of(identifier)
        static = static_values(graph, found[identifier], rule)
        for instruction in graph.instruction_of.values():
            for called, operand in control_flow_callees(instruction):
                static_elements = _invariant_elements(module, graph, instruction, called, operand) & _static_elements(
                    graph, operand, static
                )
                static_elements |= loop_weights.get(called, frozenset())
                if called in found:
                    static_elements &= found[called]  # it has two call sites
                if static_elements != found.get(called):
                    found[called] = static_elements
                    pending.append(called)
    return found


def control_flow_callees(instruction: InstructionProto) -> Iterator[tuple[int, int]]:
    """(id of a loop body or branch that the instruction runs, id of the operand that becomes its parameter).

    (XLA's `call`s contain no kernel calls, and loop conditions have none.)
    """
    called = instruction.called_computation_ids[:]
    if instruction.opcode == "while":
        yield called[0], instruction.operand_ids[0]
    elif instruction.opcode == "conditional":
        yield from zip(called, instruction.operand_ids[1:], strict=True)


def _static_elements(graph: FlatGraph, operand: int, static: AbstractSet[Node]) -> AbstractSet[int]:
    node = graph.value_of[operand]
    return (
        {n for n, element in enumerate(node.operands) if element in static} if node.opcode == "tuple" else frozenset()
    )


def _invariant_elements(
    module: Module, graph: FlatGraph, instruction: InstructionProto, called: int, operand: int
) -> AbstractSet[int]:
    """Indexes of the tuple elements that every run of the callee gets: a loop body returns them unchanged."""
    changing = variant_elements(module.computations[called]) if instruction.opcode == "while" else ()
    return frozenset(range(len(graph.value_of[operand].operands))).difference(changing)


def static_by_computation(
    graphs: Mapping[int, FlatGraph], inputs: Mapping[int, AbstractSet[int]], rule: StaticRule = PURE
) -> Mapping[int, AbstractSet[Node]]:
    """Id of a computation with static inputs → its static values, with slices of static stacked weights that only
    products read.

    A computation without static inputs has none: nothing takes what depends on its constants alone out of a loop. A
    product's weights are prepacked once for each slice. Other users make a slice dynamic: a scale would be multiplied
    into it in every iteration.

    Args:
        graphs: flat views by computation id: the entry, loop bodies and branches.
        inputs: id of a computation → its static inputs (`static_inputs_by_computation`).
    """
    found: dict[int, AbstractSet[Node]] = {}
    for identifier, static_inputs in inputs.items():
        if static_inputs:
            static = static_values(graphs[identifier], static_inputs, rule)
            slices = slices_of(graphs[identifier], static)
            found[identifier] = static.union(node for node in slices if _has_only_products(node))
    return found


def _has_only_products(node: Node) -> bool:
    return all(user.opcode == "dot" or (user.opcode == "bitcast" and _has_only_products(user)) for user in node.users)
