"""Which values of a computation are known before its module is called: they depend on frozen parameters and constants.

A loop's body and a branch are computations of their own. What enters them unchanged in every turn is as early in there
as it is outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.flat_graph import KEPT_COPY, FlatGraph, Node
from hlo_dispatch.analysis.stacked_slices import picked_values
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ELEMENTWISE, LOOP_FUSIBLE, PURE_WITH_FIELDS
from hlo_dispatch.ir.schema import InstructionProto

# The same value every time, and nothing else happens. (A fusion in a flat view is one that was not expanded.)
_PURE = ELEMENTWISE | LOOP_FUSIBLE | PURE_WITH_FIELDS | {
    "bitcast-convert", "cholesky", "complex", "count-leading-zeros", "fft", "imag", KEPT_COPY, "map", "popcnt",
    "real", "remainder", "scatter", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sort", "topk",
    "triangular-solve", "tuple",
}  # fmt: skip
_CALLS = frozenset(("call", "conditional", "fusion", "while"))


def early_values(graph: FlatGraph, given: AbstractSet[int]) -> set[Node]:
    """Values that depend on what is given and constants, and on at least one that is no scalar.

    Args:
        given: numbers of the entry's frozen parameters; in another computation, those elements of its one parameter, a
            tuple, that are early (`given_everywhere`).
    """
    is_given = _is_frozen if graph.computation.id == graph.module.proto.entry_computation_id else _is_passed
    known: set[Node] = set()
    early: set[Node] = set()
    for node in graph.nodes:
        if is_given(node, given):
            early.add(node)
        elif node.opcode in ("constant", "iota"):
            known.add(node)
            if node.opcode == "constant" and node.shape.elements > 1:
                early.add(node)
        elif node.operands and all(operand in early or operand in known for operand in node.operands):
            if is_pure(graph.module, node.proto, node.opcode):
                known.add(node)
                if any(operand in early for operand in node.operands):
                    early.add(node)
    return early


def _is_frozen(node: Node, given: AbstractSet[int]) -> bool:
    return node.opcode == "parameter" and node.proto.parameter_number in given


def _is_passed(node: Node, given: AbstractSet[int]) -> bool:
    return is_element(node) and node.proto.tuple_index in given


def is_pure(module: Module, proto: InstructionProto, opcode: str) -> bool:
    """Whether the instruction computes the same value every time and does nothing besides."""
    if proto.control_predecessor_ids:
        return False
    if opcode == "custom-call":
        return not proto.custom_call_has_side_effect
    if opcode in _CALLS:
        inner = (i for called in proto.called_computation_ids for i in module.computations[called].instructions[:])
        return all(i.opcode in ("parameter", "constant", "iota") or is_pure(module, i, i.opcode) for i in inner)
    return opcode in _PURE


def is_element(node: Node) -> bool:
    """Whether it is an element of the computation's parameter."""
    return node.opcode == "get-tuple-element" and node.operands[0].opcode == "parameter"


def given_everywhere(
    module: Module, frozen: AbstractSet[int], graph_of: Callable[[int], FlatGraph]
) -> Mapping[int, AbstractSet[int]]:
    """Id of the entry, of each loop's body and of each branch → what is given there, as `early_values` takes it.

    Args:
        frozen: numbers of the entry's parameters.
        graph_of: id of a computation → its flat view.
    """
    found: dict[int, AbstractSet[int]] = {module.entry.id: frozen}
    waiting = [module.entry.id]
    while waiting:
        identifier = waiting.pop()
        graph = graph_of(identifier)
        early = early_values(graph, found[identifier])
        for instruction in graph.instruction_of.values():
            for called, operand in entered(instruction):
                passed = _passed(module, graph, instruction, called, operand) & _early_elements(graph, operand, early)
                if called in found:
                    passed &= found[called]  # entered from two places
                if passed != found.get(called):
                    found[called] = passed
                    waiting.append(called)
    return found


def entered(instruction: InstructionProto) -> Iterator[tuple[int, int]]:
    """The computations that an instruction may run as a part of the program, each with the id of what enters it.

    (What XLA calls by `call` holds no kernel's call; a loop's condition is no place for one.)
    """
    called = instruction.called_computation_ids[:]
    if instruction.opcode == "while":
        yield called[0], instruction.operand_ids[0]
    elif instruction.opcode == "conditional":
        yield from zip(called, instruction.operand_ids[1:], strict=True)


def _early_elements(graph: FlatGraph, operand: int, early: AbstractSet[Node]) -> AbstractSet[int]:
    node = graph.value_of[operand]
    return {n for n, element in enumerate(node.operands) if element in early} if node.opcode == "tuple" else frozenset()


def _passed(
    module: Module, graph: FlatGraph, instruction: InstructionProto, called: int, operand: int
) -> AbstractSet[int]:
    """Which elements of what enters a computation are the same whenever it is entered."""
    everything = range(len(graph.value_of[operand].operands))
    if instruction.opcode != "while":
        return frozenset(everything)
    body = module.computations[called]
    by_id = {inner.id: inner for inner in body.instructions[:]}
    root = by_id[body.root_id]
    results = [by_id[identifier] for identifier in root.operand_ids[:]] if root.opcode == "tuple" else []
    return {
        number
        for number, result in enumerate(results)
        if result.opcode == "get-tuple-element"
        and result.tuple_index == number
        and by_id[result.operand_ids[0]].opcode == "parameter"
    }


def mark_early(module: Module, graphs: Mapping[int, FlatGraph], frozen: AbstractSet[int]) -> None:
    """Note it in the nodes of a module's computations.

    Args:
        graphs: their flat views, by id; of the entry and of all that `entered` names.
    """
    for identifier, given in given_everywhere(module, frozen, graphs.__getitem__).items():
        early = early_values(graphs[identifier], given)
        # Of several early ones a product's weights are as good as early: each is packed once. What a scale would be
        # multiplied into would be made anew in every turn.
        picked = (node for node in picked_values(graphs[identifier], early) if _is_for_products(node))
        for node in (*early, *picked):
            node.is_early = True


def _is_for_products(node: Node) -> bool:
    return all(user.opcode == "dot" or (user.opcode == "bitcast" and _is_for_products(user)) for user in node.users)
