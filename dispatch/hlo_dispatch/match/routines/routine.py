"""Library routines: matches of JAX's own LAPACK and FFT calls (`lapack_spotrf_ffi` …), of sorts, of XLA's TopK, of
cumulative sums (cumulative.py), and of the hash of random numbers (threefry.py).

A match also covers the copies around the call: XLA copies every matrix into column-major order and back, and a kernel
reads and writes either order. Operands are therefore peeled, and results are the values behind those copies. Cholesky's
symmetrised operand is half the sum of a matrix and its transpose; the kernel computes that as it copies.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_LAYOUTS
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, follow, full_view, peeled_views
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.match.match import LibraryCall, Match
from hlo_dispatch.match.routines.bincount import find_bincount, match_of_bincount
from hlo_dispatch.match.routines.cumulative import find_cumulative, match_of_cumulative
from hlo_dispatch.match.routines.gathered_sums import find_gathered_sums, match_of_gathered_sums
from hlo_dispatch.match.routines.product import Dimensions, normalize_product, reads_factor, stands_alone
from hlo_dispatch.match.routines.routine_match import match_of_call
from hlo_dispatch.match.routines.search import find_search, match_of_search
from hlo_dispatch.match.routines.sort import TOP_K, order_of_rows, sorts_rows
from hlo_dispatch.match.routines.sparse_product import find_sparse_product, match_of_sparse_product
from hlo_dispatch.match.routines.threefry import find_threefry
from hlo_dispatch.match.routines.top_k import largest_of_sorted
from hlo_dispatch.pattern import Routine, Table

_MAX_SOURCES = 64
_BEGINS_MUCH = frozenset(("call", "gather", "reduce-window", "scatter", "while"))
"""Opcodes of routines' instructions, of which most are no routine's; a small call may be all of a loop."""
_OPTION = re.compile(r"(\w+) = (\d+) : (?:ui8|i64)")


class RoutineFinder:
    """Finder of one table's routines in flat graphs; thread-safe."""

    def __init__(self, table: Table) -> None:
        self._by_target = {target: (r, dtype) for r in table.routines for dtype, target in r.targets.items()}
        self._top_k = next((r for r in table.routines if TOP_K in r.targets.values()), None)
        self._by_opcode: dict[str, list[Routine]] = {}
        for routine in table.routines:
            if not routine.targets:
                self._by_opcode.setdefault(routine.opcode, []).append(routine)
        self._factored = frozenset(name for routine in table.routines for name in routine.factors_of)
        self._regions = {
            routine.name: routine for opcode in _BEGINS_MUCH for routine in self._by_opcode.pop(opcode, ())
        }
        self.opcodes = frozenset(routine.opcode for routine in table.routines)

    def find(self, graph: FlatGraph) -> Iterator[tuple[Node, Match | Refusal]]:
        """Every routine of `graph` in program order, or the refusal for it."""
        unmaterialized: set[Node] = set()
        factors: set[Node] = set()
        for node in graph.nodes:
            if node.opcode in _BEGINS_MUCH:
                if node not in unmaterialized and (found := self._region_at(node, graph)) is not None:
                    if isinstance(found[1], Match):
                        unmaterialized.update(found[1].covered)
                    yield found
                continue
            known = self._routine_of(node, graph, factors) if node.opcode in self.opcodes else None
            if known is not None:
                found = self._largest_at(node, graph)
                if found is None:
                    found = _read(node, graph, *known, unmaterialized.__contains__)
                if isinstance(found, Match):
                    unmaterialized.update(set(found.covered) - set(found.results))
                if known[0].name in self._factored:
                    factors.add(node)
                yield node, found

    def _largest_at(self, node: Node, graph: FlatGraph) -> Match | None:
        """The largest of rows that a whole sort finds."""
        if node.opcode != "sort" or self._top_k is None:
            return None
        if _unsupported_size(node, (node.operands[0].shape,)) is not None:
            return None
        return largest_of_sorted(node, graph, self._top_k)

    def _region_at(self, node: Node, graph: FlatGraph) -> tuple[Node, Match | Refusal] | None:
        """What begins at a reduce-window or a gather, ends at a scatter, or is a loop: its result, and the match or the
        refusal.
        """
        if node.opcode == "reduce-window":
            return self._cumulative_at(node, graph)
        if node.opcode == "gather":
            return self._gather_at(node, graph)
        found = self._scatter_at(node, graph) if node.opcode == "scatter" else self._loop_at(node, graph)
        return None if found is None else (node, found)

    def _cumulative_at(self, node: Node, graph: FlatGraph) -> tuple[Node, Match | Refusal] | None:
        """The tree of reduce-windows that begins at one: its result, and the match or the refusal."""
        found = find_cumulative(node, graph) if self._regions else None
        routine = None if found is None else self._regions.get(found.routine)
        if found is None or routine is None or found.source.element_type not in routine.numerics:
            return None
        refusal = _unsupported_size(found.result, (found.source.node.shape, found.result.shape))
        return found.result, match_of_cumulative(found, routine) if refusal is None else refusal

    def _gather_at(self, node: Node, graph: FlatGraph) -> tuple[Node, Match | Refusal] | None:
        """The sums of gathered rows: their result, and the match or the refusal."""
        routine = self._regions.get("gathered_sums")
        found = None if routine is None else find_gathered_sums(node, graph)
        if routine is None or found is None or found.gathered.source.element_type not in routine.numerics:
            return None
        refusal = _unsupported_size(found.result, (found.result.shape, *(operand.shape for operand in node.operands)))
        return found.result, match_of_gathered_sums(found, routine) if refusal is None else refusal

    def _scatter_at(self, node: Node, graph: FlatGraph) -> Match | Refusal | None:
        """The product of a sparse matrix whose rows a scatter adds up, or what it counts."""
        routine = self._regions.get("bincount")
        counted = None if routine is None else find_bincount(node, graph)
        if routine is not None and counted is not None and node.shape.element_type in routine.numerics:
            refusal = _unsupported_size(node, (node.shape, counted.indices.view.node.shape))
            return match_of_bincount(counted, routine) if refusal is None else refusal
        routine = self._regions.get("sparse_product")
        found = None if routine is None else find_sparse_product(node, graph)
        if routine is None or found is None or found.source.element_type not in routine.numerics:
            return None
        refusal = _unsupported_size(node, (node.shape, found.source.node.shape, found.values.node.shape))
        return match_of_sparse_product(found, routine) if refusal is None else refusal

    def _loop_at(self, node: Node, graph: FlatGraph) -> Match | Refusal | None:
        """The hash of random numbers that a loop computes, or the search in a sorted array that it is."""
        routine = self._regions.get("threefry2x32")
        hashing = None if routine is None else find_threefry(node, graph, routine)
        return hashing or self._search_at(node, graph)

    def _search_at(self, node: Node, graph: FlatGraph) -> Match | Refusal | None:
        """The search in a sorted array that a loop is."""
        routine = self._regions.get("searchsorted")
        found = None if routine is None else find_search(node, graph)
        if routine is None or found is None:
            return None
        refusal = _unsupported_size(node, (found.sorted.node.shape, found.source.node.shape))
        return match_of_search(found, node, routine) if refusal is None else refusal

    def _routine_of(self, node: Node, graph: FlatGraph, factors: set[Node]) -> tuple[Routine, str] | None:
        """The table's routine for the instruction, one of `opcodes`, and its element type."""
        if node.opcode == "custom-call":
            target = node.proto.custom_call_target
            return None if target == TOP_K and not sorts_rows(node, graph) else self._by_target.get(target)
        dtype = node.operands[0].shape.element_type
        for routine in self._by_opcode[node.opcode]:
            if node.opcode == "sort" and not (len(node.operands) == len(routine.operands) and sorts_rows(node, graph)):
                continue
            if node.opcode == "dot" and (dtype not in routine.numerics or not stands_alone(node, graph)):
                continue
            if not routine.factors_of or (factors and reads_factor(node, factors)):
                return routine, dtype
        return None


def _read(
    node: Node, graph: FlatGraph, routine: Routine, dtype: str, is_unmaterialized: Callable[[Node], bool]
) -> Match | Refusal:
    shapes = tuple(shape_of(part) for part in node.proto.shape.tuple_shapes) or (node.shape,)
    refusal = _unsupported_call(node, routine, dtype, shapes)
    if refusal is not None:
        return refusal
    options = _options(node, graph)
    if set(options) != set(routine.options):
        said = ", ".join(sorted(options)) or "none"
        return Refusal("kernel-unsupported", f"{routine.name} with the attributes {said} is unknown", node.name)
    if node.opcode == "dot":
        return _product(node, routine, shapes, is_unmaterialized)
    operands: list[View] = []
    symmetrised, removed_copies = False, 0
    for (name, kind), operand in zip(routine.operands.items(), node.operands, strict=True):
        view = full_view(operand)
        if kind != "vector":
            may_symmetrise = name == routine.symmetrised and dtype in ("f32", "f64")
            view, is_symmetrised = _fully_peeled(view, _FITS[kind], is_unmaterialized, may_symmetrise=may_symmetrise)
            symmetrised = symmetrised or is_symmetrised
            removed_copies += is_symmetrised or not _same_order(view.dimensions, full_view(operand).dimensions)
        operands.append(view)
    results: list[Node | None] = []
    destinations: list[Dimensions] = []
    covered: list[Node] = [node]
    final_shapes: list[Shape] = []
    for number, (kind, shape) in enumerate(zip(routine.results.values(), shapes, strict=True)):
        value = _result_value(node, number, shapes)
        dimensions = shape.strided_dimensions
        if value is not None and kind != "vector":
            path, dimensions = _follow_copies(View(value, dimensions), _FITS[kind])
            covered += path[:-1] if value is node else path
            removed_copies += not _same_order(dimensions, shape.strided_dimensions)
            value = path[-1]
        elif value is not None:
            covered.append(value)
        results.append(value)
        destinations.append(dimensions)
        final_shapes.append(shape if value is None else value.shape)
    covered = sorted({*covered, *(value for value in results if value is not None)}, key=lambda member: member.index)
    call = LibraryCall(routine, options, tuple(destinations), removed_copies)
    return match_of_call(call, node, tuple(operands), results, final_shapes, covered, symmetrised=symmetrised)


def _product(
    node: Node, routine: Routine, shapes: tuple[Shape, ...], is_unmaterialized: Callable[[Node], bool]
) -> Match | Refusal:
    found = normalize_product(node, _is_matrix, is_unmaterialized)
    if isinstance(found, Refusal):
        return found
    operands, destination = found
    path, destination = _follow_copies(View(node, destination), _is_matrix)
    views = tuple(_cheapest_to_materialize(views) for views in operands)
    removed_copies = sum(view.node is not operand for view, operand in zip(views, node.operands, strict=True))
    call = LibraryCall(routine, {}, (destination,), removed_copies + len(path) - 1)
    return match_of_call(call, node, views, [path[-1]], [path[-1].shape], path)


def _unsupported_call(node: Node, routine: Routine, dtype: str, shapes: tuple[Shape, ...]) -> Refusal | None:
    """A refusal if the instruction is not the table's routine, or cannot be replaced."""
    proto = node.proto
    is_jax_call = node.opcode == "custom-call" and proto.custom_call_target != TOP_K
    if is_jax_call and proto.custom_call_api_version != CUSTOM_CALL_API_TYPED_FFI:
        return Refusal("kernel-unsupported", f"{proto.custom_call_target} is called in another way", node.name)
    if len(node.operands) != len(routine.operands) or len(shapes) != len(routine.results):
        found = f"{len(node.operands)} operands and {len(shapes)} results"
        return Refusal("kernel-unsupported", f"{routine.name} with {found} is unknown", node.name)
    if node.operands[0].shape.element_type != dtype or dtype not in routine.numerics:
        types = (dtype,) if dtype in routine.numerics else routine.numerics
        sentence = f"{node.operands[0].shape} is not {' or '.join(types)}"
        return Refusal("dtype-unsupported", sentence, node.name)
    parts = (user for user in node.users if user.opcode == "get-tuple-element")
    waiting = next((value for value in (node, *parts) if value.has_control_predecessors), None)
    if waiting is not None:
        return Refusal("control-dependency", "the instruction has control predecessors", waiting.name)
    is_passed_on = node.is_live_out or any(user.opcode != "get-tuple-element" for user in node.users)
    if is_passed_on and node.shape.element_type == "tuple":
        return Refusal("rewrite-unsupported", "the tuple of its results is passed on as a whole", node.name)
    return _unsupported_size(node, (*(operand.shape for operand in node.operands), *shapes))


def _unsupported_size(node: Node, shapes: Iterable[Shape]) -> Refusal | None:
    for shape in shapes:
        if shape.is_dynamic:
            return Refusal("dynamic-shape", f"{shape} has a dimension known only at run time", node.name)
        if shape.elements == 0:
            return Refusal("zero-size", f"{shape} has no elements", node.name)
    return None


def _options(node: Node, graph: FlatGraph) -> dict[str, int]:
    """Options of the instruction besides its operands."""
    if node.opcode == "dot" or node.proto.custom_call_target == TOP_K:
        return {}
    if node.opcode == "sort":
        order = order_of_rows(node, graph)
        assert order is not None, "the routine says so"
        return {name: int(value) for name, value in order._asdict().items()}
    if node.opcode == "fft":
        return {"fft_type": node.proto.fft_type, "rank": len(node.proto.fft_length)}
    return {name: int(value) for name, value in _OPTION.findall(node.proto.backend_config.decode())}


def _result_value(node: Node, number: int, shapes: tuple[Shape, ...]) -> Node | None:
    """The call's result of this number, if it has users."""
    if node.shape.element_type != "tuple":
        return node
    return next((user for user in node.users if user.proto.tuple_index == number), None)


# --- matrices in either order ---------------------------------------------------------------------------------


def _fully_peeled(
    view: View, fits: Callable[[Dimensions], bool], is_unmaterialized: Callable[[Node], bool], *, may_symmetrise: bool
) -> tuple[View, bool]:
    """The furthest peeled view of the operand that a kernel can read, and whether it is symmetrised on the way."""
    views = [v for v in peeled_views(view, PEEL_LAYOUTS) if fits(v.dimensions) and not is_unmaterialized(v.node)]
    if may_symmetrise:
        for candidate in reversed(views):
            symmetrised = [v for v in _symmetrised(candidate) if fits(v.dimensions) and not is_unmaterialized(v.node)]
            if symmetrised:
                return _cheapest_to_materialize(symmetrised), True
    return (_cheapest_to_materialize(views) if views else view), False


def _cheapest_to_materialize(views: list[View]) -> View:
    """The view (of equal ones, nearest first) that is the cheapest to have in memory."""
    if views[-1].node.top_level_id is not None:
        return views[-1]
    # A loop over all its elements computes it: the best layout is that of the loop's operands.
    return max(reversed(views), key=lambda view: _agreement(view.node))


def _agreement(node: Node) -> int:
    """The number of arrays that `node` reads with its own layout, minus those with another."""
    count, seen, pending = 0, {node}, [node]
    while pending and len(seen) < _MAX_SOURCES:
        for operand in pending.pop().operands:
            if operand in seen or operand.shape.dimensions != node.shape.dimensions:
                continue
            seen.add(operand)
            if operand.top_level_id is not None:
                count += 1 if operand.shape.minor_to_major == node.shape.minor_to_major else -1
            elif operand.opcode in ELEMENTWISE or operand.opcode == "copy":
                pending.append(operand)
    return count


def _symmetrised(view: View) -> list[View]:
    """The peeled views of x where the view is (x + transpose(x)) * 0.5, nearest first; empty: it is not."""
    factors = _operands(view, "multiply")
    for half, total in itertools.permutations(factors) if factors else ():
        if scalar_constant(half.node) == 0.5:
            return _with_transpose(total)
    return []


def _with_transpose(total: View) -> list[View]:
    """The peeled views of x where the view is x + transpose(x); empty: it is not."""
    terms = _operands(total, "add")
    if not terms:
        return []
    plain = peeled_views(terms[0], PEEL_LAYOUTS)
    turned = [_transposed(view) for view in peeled_views(terms[1], PEEL_LAYOUTS)]
    met = next((place for place, view in enumerate(plain) if view in turned), None)
    if met is None:
        return []
    return [*plain[:met], *turned[: turned.index(plain[met])], *plain[met:]]


def _operands(view: View, opcode: str) -> tuple[View, ...]:
    """Both operands of an elementwise instruction as views; empty: it has another opcode or layout."""
    node = view.node
    if node.opcode != opcode:
        return ()
    if any(operand.shape.strides != node.shape.strides for operand in node.operands):
        return ()
    return tuple(View(operand, view.dimensions) for operand in node.operands)


def _transposed(view: View) -> View:
    *batch, rows, columns = view.dimensions
    return View(view.node, (*batch, columns, rows))


def _is_matrix(dimensions: Dimensions) -> bool:
    """Whether rows or columns are contiguous and no element is aliased."""
    (rows, row_stride), (columns, column_stride) = dimensions[-2:]
    if any(stride == 0 and size > 1 for size, stride in dimensions):
        return False
    if rows == 1 or columns == 1:
        return True
    by_columns = row_stride == 1 and column_stride >= rows
    return by_columns or (column_stride == 1 and row_stride >= columns)


def _is_strided(dimensions: Dimensions) -> bool:
    """Whether no element is aliased."""
    return all(stride > 0 or size == 1 for size, stride in dimensions)


_FITS = {"matrix": _is_matrix, "array": _is_strided}


def _same_order(first: Dimensions, second: Dimensions) -> bool:
    """Whether the dimensions of more than one element have the same memory order."""
    long = [(a[1], b[1]) for a, b in zip(first, second, strict=True) if a[0] > 1]
    return [b for _, b in sorted(long)] == sorted(b for _, b in long)


def _follow_copies(view: View, fits: Callable[[Dimensions], bool]) -> tuple[list[Node], Dimensions]:
    """Follows a result through copies that only change its layout, as long as they are its only use.

    Returns the values on the way, the last of which is the result, and the result's dimensions over its buffer.
    """
    path = [view.node]
    best = path, view.dimensions
    while len(view.node.users) == 1 and not view.node.is_live_out:
        (user,) = view.node.users
        further = follow(view, user, PEEL_LAYOUTS)
        if further is None:
            break
        view, path = further, [*path, user]
        if user.opcode != "bitcast":
            view = View(user, tuple((size, stride if size > 1 else 1) for size, stride in view.dimensions))
            if fits(view.dimensions):
                best = path, view.dimensions
    return best
