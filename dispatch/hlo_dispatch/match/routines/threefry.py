"""Threefry loops: the hash of `jax.random`, a `while` of five iterations that each make a pass over both words.

    (i, first, second, key_0, key_1, key_2, rotations, rotations) → the same, its keys and rotations moved on by one

What the body computes is recognized by what the loop makes of random words; which elements of the tuple are words and
which are keys follows from that. `kernels/random/threefry.cc` has the formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlo_dispatch.analysis.counted_loop import CountedLoop, loop_at, peel_inserted_copies
from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node, flat_graphs
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.match.described_view import sizes_and_strides
from hlo_dispatch.match.match import Match
from hlo_dispatch.pattern import Routine

_ITERATIONS, _WORDS, _KEYS = 5, 2, 3
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_FEWEST = 1 << 10
"""Elements of fewer are keys that a program splits, and no numbers that it draws."""
_SAMPLES = 7
_SEED = 5
_LITERALS = {"s32": ("s32s", np.int32), "s64": ("s64s", np.int64), "u32": ("u32s", np.uint32)}
"""Element type → the literal's field that has its numbers, and their type."""
_MOVES = frozenset(("bitcast", "broadcast", "copy", "reshape", INSERTED_COPY))


def find_threefry(node: Node, graph: FlatGraph, routine: Routine) -> Match | None:
    """The match of a `while`, or of a call of nothing but one; None: it computes or gives something else."""
    loop = loop_at(graph.module, node)
    words = None if loop is None else _words(loop)
    if loop is None or words is None:
        return None
    initial = node.operands[0]
    if initial.opcode != "tuple" or initial.users != [node] or node.is_live_out:
        return None
    replaced = (node, initial, *initial.operands, *node.users)
    if any(one.has_control_predecessors for one in replaced):
        return None
    with flat_graphs(graph.module) as graph_of:
        counted = CountedLoop.of(loop, graph_of(loop.called_computation_ids[0]))
        order = None if counted is None else _order(counted, words, initial.operands)
    parts = {user.proto.tuple_index: user for user in node.users}
    if order is None or not parts.keys() <= set(words):
        return None
    return _match(routine, node, initial, order, [parts.get(element) for element in order[:_WORDS]])


def _words(loop: InstructionProto) -> list[int] | None:
    """The two elements of the loop's tuple that are arrays of as many words; None: it has no such two."""
    if trip_count(loop) != _ITERATIONS:
        return None
    shapes = loop.shape.tuple_shapes[:]
    found = [n for n, shape in enumerate(shapes) if shape.dimensions[:] and np.prod(shape.dimensions[:]) >= _FEWEST]
    if len(found) != _WORDS or shapes[found[0]] != shapes[found[1]]:
        return None
    return found


def _order(loop: CountedLoop, words: list[int], initial: Sequence[Node]) -> tuple[int, ...] | None:
    """The words' and keys' elements in the kernel's order; None: the loop computes something else."""
    random = np.random.default_rng(_SEED)
    state, keys = dict[int, Any](), list[int]()
    for element, value in enumerate(initial):
        shape = value.shape
        if element in words and shape.element_type == "u32":
            state[element] = random.integers(0, 1 << 32, _SAMPLES, np.uint32)
        elif element == loop.induction_element:
            state[element] = np.int64(loop.first)
        elif (shape.element_type, shape.elements) == ("u32", 1):
            keys.append(element)
            state[element] = np.uint32(random.integers(0, 1 << 32))
        else:
            state[element] = _literal(peel_inserted_copies(value))
    if loop.first or len(keys) != _KEYS or any(value is None for value in state.values()):
        return None
    hashed = _iterated(loop, state)
    if hashed is None:
        return None
    for first, second in (words, words[::-1]):
        for ordered in itertools.permutations(keys):
            expected = _hashed(state[first], state[second], [state[key] for key in ordered])
            if all(np.array_equal(e, hashed[n]) for e, n in zip(expected, (first, second), strict=True)):
                return first, second, *ordered
    return None


def _iterated(loop: CountedLoop, state: Mapping[int, Any]) -> Mapping[int, Any] | None:
    """The loop's tuple behind its last iteration; None: the body has an instruction that is none of a hash."""
    for _ in range(loop.trips):
        known: dict[Node, Any] = {}
        for node in loop.body.nodes:
            known[node] = _value(loop, node, state, known)
        state = {element: known[node] for element, node in enumerate(loop.next_state)}
        if any(value is None for value in state.values()):
            return None
    return state


def _value(loop: CountedLoop, node: Node, state: Mapping[int, Any], known: Mapping[Node, Any]) -> Any:
    """What a node of the body computes of samples of the words; None: it is none of what hashes have."""
    if (element := loop.element_of(node)) is not None:
        return state[element]
    opcode, shape = node.opcode, node.shape
    if opcode == "constant":
        return _literal(node)
    operands = [known[operand] for operand in node.operands]
    if not operands or any(value is None for value in operands) or not shape.is_array:
        return None
    source = node.operands[0].shape
    if opcode in _MOVES:
        is_moved = source.elements == 1 or (source == shape and opcode != "broadcast")
        return operands[0] if is_moved and source.element_type == shape.element_type else None
    if opcode == "slice" and len(source.dimensions) == 1 and shape.elements == 1:
        return operands[0][node.proto.slice_dimensions[0].start]
    if opcode == "convert" and shape.element_type in _LITERALS:
        return operands[0].astype(_LITERALS[shape.element_type][1])
    return _computed(opcode, operands)


def _computed(opcode: str, operands: list[Any]) -> Any:
    with np.errstate(over="ignore"):
        match opcode:
            case "add":
                return operands[0] + operands[1]
            case "subtract":
                return operands[0] - operands[1]
            case "xor":
                return operands[0] ^ operands[1]
            case "or":
                return operands[0] | operands[1]
            case "and":
                return operands[0] & operands[1]
            case "shift-left" | "shift-right-logical" if operands[0].dtype == np.uint32:
                shifted = np.left_shift if opcode == "shift-left" else np.right_shift
                return np.where(operands[1] < 32, shifted(operands[0], operands[1] % 32), 0).astype(np.uint32)
            case _:
                return None


def _literal(node: Node) -> Any:
    """A small constant's numbers; None: it is another value."""
    kind = _LITERALS.get(node.shape.element_type)
    if node.opcode != "constant" or kind is None or node.shape.elements > max(map(len, _ROTATIONS)):
        return None
    numbers = np.array(getattr(node.proto.literal, kind[0])[:], kind[1])
    return numbers.reshape(node.shape.dimensions) if numbers.size == node.shape.elements else None


def _hashed(first: Any, second: Any, keys: Sequence[Any]) -> tuple[Any, Any]:
    with np.errstate(over="ignore"):
        for number in range(_ITERATIONS):
            for bits in _ROTATIONS[number % 2]:
                first = first + second
                second = (second << np.uint32(bits) | second >> np.uint32(32 - bits)) ^ first
            first = first + keys[number % _KEYS]
            second = second + keys[(number + 1) % _KEYS] + np.uint32(number + 1)
    return first, second


def _match(routine: Routine, node: Node, initial: Node, order: Sequence[int], results: Sequence[Node | None]) -> Match:
    values = [peel_inserted_copies(initial.operands[element]) for element in order]
    views = [View(value, ((value.shape.elements, 1),)) for value in values]
    operands = dict(zip(routine.operands, views, strict=True))
    shape = initial.operands[order[0]].shape
    dead = [n for n in initial.operands if n not in values and n.users == [initial] and n.opcode != "parameter"]
    covered = {*dead, initial, node, *(result for result in results if result is not None)}

    def attributes() -> dict[str, Any]:
        destinations = dict.fromkeys(routine.results, views[0])
        return {"type": "u32", **sizes_and_strides({**operands, **destinations})}

    return Match(
        entry=routine,
        node=node,
        kernels=routine.kernels,
        kernel=routine.kernels[0],
        operands=operands,
        results=tuple(results),
        result_shapes=(shape,) * _WORDS,
        covered=tuple(sorted(covered, key=lambda n: n.index)),
        formula=routine.formula,
        attributes=attributes,
        numerics=lambda: routine.numerics["u32"],
    )
