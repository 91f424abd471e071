"""Searches in sorted arrays, as jnp.searchsorted has them: a loop that halves an interval for each number.

    middle = low + (high - low) / 2
    is_left = number <= sorted[middle], or < where the place is behind equal numbers
    low, high = select(is_left, low, middle), select(is_left, middle, high)

from 0 and N on; the last `high` is the place. XLA compares integers in the order of the numbers, and may compute those
of the wanted numbers ahead of the loop. So the loop is recognized by what it does with samples, of the places and of
pairs of numbers, and the wanted numbers are those from which it does the right thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from hlo_dispatch.analysis.counted_loop import CountedLoop, loop_at
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node, flat_graphs
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.match.described_view import sizes_and_strides
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.typed_values import DTYPES, TypedValues
from hlo_dispatch.pattern import Routine
from hlo_dispatch.pattern.constraints import is_row_major

_TYPES = ("f32", "f64")
_PLACES = {"u32": False, "u64": True}
"""Element type of places → whether they have 64 bits."""
_ENDS = 2
"""Of an interval: places that are the loop's state."""
_MOST_TRIPS = 64
_MOST_CANDIDATES = 16
_NUMBERS = (np.nan, -np.nan, -np.inf, -2.5, -1.0, -0.0, 0.0, 1e-3, 1.0, 2.5, np.inf)


class Search(NamedTuple):
    """What a loop searches, and in which array."""

    sorted: View
    source: View
    result: Node
    is_right: bool
    """Whether places are behind equal numbers."""
    steps: int
    covered: tuple[Node, ...]


def match_of_search(found: Search, loop: Node, routine: Routine) -> Match:
    """The match of the loop."""
    kind = found.source.element_type
    operands = {"sorted": found.sorted, "src": found.source}

    def attributes() -> dict[str, Any]:
        described = sizes_and_strides({**operands, "dst": found.source})
        wide = _PLACES[found.result.shape.element_type]
        return {"type": kind, **described, "right": int(found.is_right), "wide": int(wide), "steps": found.steps}

    return Match(
        entry=routine,
        node=loop,
        kernels=routine.kernels,
        kernel=routine.kernels[0],
        operands=operands,
        results=(found.result,),
        result_shapes=(found.result.shape,),
        covered=found.covered,
        formula=routine.formula,
        attributes=attributes,
        numerics=lambda: routine.numerics[kind],
        multiply_adds=found.steps * found.source.sizes[0],
    )


def find_search(node: Node, graph: FlatGraph) -> Search | None:
    """What a loop searches, or one that is all of what the instruction calls; None: it does something else."""
    loop = loop_at(graph.module, node)
    trips = None if loop is None else trip_count(loop)
    if loop is None or trips is None or trips > _MOST_TRIPS or node.has_control_predecessors:
        return None
    initial = node.operands[0]
    if initial.opcode != "tuple" or sum(n.shape.element_type in _PLACES for n in initial.operands) < _ENDS:
        return None
    with flat_graphs(graph.module) as graph_of:
        counted = CountedLoop.of(loop, graph_of(loop.called_computation_ids[0]))
        return None if counted is None else _LoopAttempt(node, counted).search()


class _LoopAttempt:
    """One match attempt."""

    def __init__(self, loop: Node, counted: CountedLoop) -> None:
        self._loop, self._counted = loop, counted
        self._initial = loop.operands[0].operands
        self._body = frozenset(counted.body.nodes)

    def search(self) -> Search | None:
        """What the loop searches; None: it does something else."""
        gathers = [node for node in self._counted.body.nodes if node.opcode == "gather"]
        state = [n for n in range(len(self._initial)) if not self._counted.is_invariant(n)]
        state = [number for number in state if number != self._counted.induction_element]
        if len(gathers) != 1 or len(state) != _ENDS:
            return None
        sorted_array = self._gathered_from(gathers[0])
        if sorted_array is None:
            return None
        for low, high in (state, state[::-1]):
            if self._begins(low, high, sorted_array) and self._halves(gathers[0], low, high, sorted_array):
                return self._found(gathers[0], low, high, sorted_array)
        return None

    def _gathered_from(self, gather: Node) -> Node | None:
        """The array that single elements are gathered from, one for each element of the state."""
        array, start = gather.operands
        numbers, element = gather.proto.gather_dimension_numbers, self._counted.element_of(array)
        if element is None or not self._counted.is_invariant(element) or len(array.shape.dimensions) != 1:
            return None
        is_of_places = start.shape.elements == gather.shape.elements and list(numbers.start_index_map) == [0]
        is_of_places &= list(gather.proto.gather_slice_sizes) == [1] and not numbers.operand_batching_dims
        found = self._initial[element]
        return found if is_of_places and found.shape.element_type in _TYPES else None

    # --- what the body does with samples -----------------------------------------------------------

    def _values(self, known: Mapping[Node | int, Any], elements: int) -> TypedValues:
        """Values of the body, and of what is ahead of the loop, by those of nodes and of elements of the state."""

        def leaf(node: Node) -> Any:
            if node in known:
                return known[node]
            if node not in self._body:
                return None
            element = self._counted.element_of(node)
            if element is None:
                return None
            if element in known:
                return known[element]
            return self._initial[element] if self._counted.is_invariant(element) else None

        return TypedValues(leaf, elements)

    def _begins(self, low: int, high: int, sorted_array: Node) -> bool:
        """Whether the loop begins with the whole array."""
        kinds = {self._initial[element].shape for element in (low, high)}
        (shape, *others) = kinds
        if others or shape.element_type not in _PLACES or not is_row_major(shape) or shape.is_dynamic:
            return False
        values = self._values({}, shape.elements)
        ends = [values.of(self._initial[element]) for element in (low, high)]
        size = sorted_array.shape.elements
        return all(np.ndim(end) == 0 and end == wanted for end, wanted in zip(ends, (0, size), strict=True))

    def _halves(self, gather: Node, low: int, high: int, sorted_array: Node) -> bool:
        """Whether the middle of the interval is gathered."""
        shape = self._initial[low].shape
        lows, highs = _intervals(sorted_array.shape.elements, DTYPES[shape.element_type])
        values = self._values({low: lows, high: highs}, shape.elements)
        middle = values.of(gather.operands[1])
        return middle is not None and np.array_equal(middle, lows + (highs - lows) // 2)

    def _found(self, gather: Node, low: int, high: int, sorted_array: Node) -> Search | None:
        shape = self._initial[low].shape
        for candidate in self._candidates(gather.shape.element_type, shape.elements):
            for is_right in (False, True):
                if self._compares(candidate, gather, (low, high), sorted_array, is_right=is_right):
                    return self._search(candidate, high, sorted_array, is_right=is_right)
        return None

    def _candidates(self, kind: str, elements: int) -> Iterator[Node]:
        """Arrays ahead of the loop that may be what is searched, those that it reads first."""
        pending = [
            node
            for element, node in enumerate(self._initial)
            if self._counted.is_invariant(element) and node.shape.elements == elements
        ]
        seen: set[Node] = set()
        while pending and len(seen) < _MOST_CANDIDATES:
            node = pending.pop(0)
            if node in seen:
                continue
            seen.add(node)
            if node.shape.element_type == kind and is_row_major(node.shape):
                yield node
            operands = TypedValues.operands_of(node, elements)
            pending += [operand for operand in operands or () if operand.shape.elements == elements]

    def _compares(
        self, candidate: Node, gather: Node, state: tuple[int, int], sorted_array: Node, *, is_right: bool
    ) -> bool:
        """Whether the state becomes what it is to become, where the candidate is what is searched."""
        shape = self._initial[state[0]].shape
        numbers: Any = np.array(_NUMBERS, DTYPES[gather.shape.element_type])
        lows, highs = _intervals(sorted_array.shape.elements, DTYPES[shape.element_type])
        grid = cast("Any", np.meshgrid(numbers, numbers, np.arange(len(lows))))
        wanted, found, place = (axis.ravel() for axis in grid)
        lows, highs = lows[place], highs[place]
        known: dict[Node | int, Any] = {state[0]: lows, state[1]: highs, candidate: wanted, gather: found}
        values = self._values(known, shape.elements)
        is_left = _is_left(wanted, found, is_right=is_right)
        middle = lows + (highs - lows) // 2
        expected: list[Any] = [np.where(is_left, lows, middle), np.where(is_left, middle, highs)]
        for element, next_value in zip(state, expected, strict=True):
            computed = values.of(self._counted.next_state[element])
            if computed is None or not np.array_equal(computed, next_value):
                return False
        return True

    # --- the match --------------------------------------------------------------------------------

    def _search(self, source: Node, high: int, sorted_array: Node, *, is_right: bool) -> Search | None:
        parts = {user.proto.tuple_index: user for user in self._loop.users}
        if set(parts) != {high} or self._loop.is_live_out or any(p.has_control_predecessors for p in parts.values()):
            return None
        reads = {source, sorted_array}
        initial = self._loop.operands[0]
        dead = [node for node in self._initial if node not in reads and self._is_read_by(initial, node)]
        covered: set[Node] = {*dead, self._loop, parts[high]}
        if initial.users == [self._loop] and not initial.has_control_predecessors:
            covered.add(initial)
        ordered = tuple(sorted(covered, key=lambda node: node.index))
        return Search(_vector(sorted_array), _vector(source), parts[high], is_right, self._counted.trips, ordered)

    @staticmethod
    def _is_read_by(user: Node, node: Node) -> bool:
        """Whether nothing else needs the node, which is computed here."""
        is_computed = node.opcode != "parameter" and not node.is_live_out and not node.has_control_predecessors
        return is_computed and node.users == [user]


def _vector(node: Node) -> View:
    """All elements of a row-major array."""
    return View(node, ((node.shape.elements, 1),))


def _intervals(size: int, dtype: Any) -> tuple[Any, Any]:
    """Samples of intervals that there may be in an array of so many elements."""
    ends = sorted({0, 1, 2, 3, size // 3, size // 2, size - 2, size - 1, size} & set(range(size + 1)))
    pairs = [(low, high) for low in ends for high in ends if low <= high and low < size]
    lows, highs = zip(*pairs, strict=True)
    return np.array(lows, dtype), np.array(highs, dtype)


def _is_left(wanted: Any, found: Any, *, is_right: bool) -> Any:
    """Whether the place of a wanted number is at a number of the array or ahead of it; NaN is larger than all."""
    with np.errstate(invalid="ignore"):
        if is_right:
            return (wanted < found) | (np.isnan(found) & ~np.isnan(wanted))
        return (wanted <= found) | np.isnan(found)
