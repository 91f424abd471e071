"""Epilogue finder: follows the chain of elementwise ops behind an anchor op that its kernel computes as post-ops.

Each step is a unary region that equals an activation of the table (its furthest matching exit), a binary instruction
whose other operand does not depend on the anchor op, or a free change of shape or type. All users of a value inside
the chain are inside, so that one call replaces the chain without recomputation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache, partial
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import is_widening
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    project_dimensions,
    rebase_dimensions,
    with_dense_strides,
)
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.anchors.anchor import COMPUTED_TYPES, Anchor
from hlo_dispatch.match.elementwise_region import ElementwiseRegion, grow_region
from hlo_dispatch.match.epilogue.integers import add_of_integers, quantizes
from hlo_dispatch.match.epilogue.operand import OperandFinder, find_operand
from hlo_dispatch.match.epilogue.steps import Chain, PostOp, Step
from hlo_dispatch.match.match_memo import MatchMemo
from hlo_dispatch.pattern import TOLERANCES, Binary, Recogniser
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES, WRAPPING_TYPES
from hlo_dispatch.pattern.recognise import Recognised, number
from hlo_dispatch.pattern.table import AnchorKind

_WITHOUT_POST_OP = frozenset(("bitcast", "convert", "copy", "transpose"))
"""Opcodes of instructions that a kernel may compute without a post-op."""
_MOST_FUNCTIONS = 20_000
"""Functions that are remembered: programs may have new constants in each compile."""


class KnownFunction(NamedTuple):
    """A function of an elementwise region that an activation of the table computes."""

    exit: int
    """Where it ends, among the region's nodes."""
    activation: str
    post_ops: tuple[PostOp, ...]


_UNKNOWN = KnownFunction(-1, "", ())


class EpilogueFinder:
    """Grows epilogue chains from the activations and binaries of a table that each anchor's entry allows.

    Remembers the functions it has recognised.
    """

    def __init__(self, recogniser: Recogniser, binaries: Mapping[str, Binary]) -> None:
        self._recogniser = recogniser
        self._binaries = binaries
        self._known_functions: dict[tuple[object, ...], KnownFunction | None] = {}
        self._memos: dict[Hashable, MatchMemo] = {}

    def memo(self, *settings: Hashable) -> MatchMemo:
        """The matches of anchors whose epilogues it found under these settings."""
        return self._memos.setdefault(settings, MatchMemo())

    def grow(
        self,
        anchor: Anchor,
        is_owned: Callable[[Node], bool],
        is_materialized: Callable[[Node], bool],
        is_result_of_another: Callable[[Node, Node], bool],
        results: AbstractSet[Node],
    ) -> Chain:
        """The longest epilogue chain behind `anchor` that its entry in the table allows.

        Args:
            is_owned: whether another match owns an instruction.
            is_materialized: whether a value must be in memory (the computation's result, another call's operand).
            is_result_of_another: (anchor, value) → whether another anchor's chain can end in `value`, so
                that it will be in memory although XLA had fused it away.
            results: results of dispatched calls, in front of which values may not exist.
        """

        def operand_of(user: Node, other: Node, types: Collection[str]) -> View | None:
            will_be_result = partial(is_result_of_another, anchor.node)
            return find_operand(user, other, types, is_owned, will_be_result, results)

        entry = anchor.entry
        steps: list[Step] = []
        current = anchor.result
        destination = anchor.destination
        post_ops = 0 if anchor.leading_post_op is None else 1
        while True:
            end = _ended_chain(steps, current, is_materialized)
            if end is not None:
                return end
            region = grow_region(current, is_owned, is_materialized) if entry.longest_chain else None
            step = self._activation(region, entry, destination) if region is not None and region.exits else None
            if step is None:
                if len(current.users) > 1:
                    return self._stopped_chain(steps, region, entry, current, _why_shared(current))
                user = current.users[0]
                if is_owned(user):
                    return Chain(tuple(steps), user, "another match has taken this instruction")
                step = self._other_step(anchor, current, destination, steps, operand_of, is_owned, is_materialized)
            if isinstance(step, str):
                return self._stopped_chain(steps, region, entry, current.users[0], step)
            post_ops += len(step.post_ops)
            parts = _with_widening_apart(step)
            forbidden = _refused_by_entry(entry, parts, post_ops)
            if forbidden is not None:
                return Chain(tuple(steps), *forbidden)
            steps += parts
            current, destination = step.result, step.destination

    def _other_step(
        self,
        anchor: Anchor,
        current: Node,
        destination: tuple[Dimension, ...],
        steps: Sequence[Step],
        operand_of: OperandFinder,
        is_owned: Callable[[Node], bool],
        is_materialized: Callable[[Node], bool],
    ) -> Step | str:
        """The step for the value's only user, where that begins no activation; a sentence: why there is none."""
        user = current.users[0]
        step = None
        if user.opcode in _WITHOUT_POST_OP:
            step = _no_op_step(current, user, destination) or _rearranged(anchor, current, user, destination)
        if step is None and anchor.source.element_type in INTEGER_TYPES:
            step = _integers(anchor, current, user, destination, operand_of)
        if step is None and anchor.kernel_specific_step is not None:
            is_inner = partial(_is_inner, is_owned=is_owned, is_materialized=is_materialized)
            step = anchor.kernel_specific_step(current, destination, steps, is_inner)
        return step or self._binary(anchor, current, destination, operand_of)

    def _stopped_chain(
        self, steps: list[Step], region: ElementwiseRegion | None, entry: AnchorKind, node: Node, why: str
    ) -> Chain:
        """The chain that ends here: at an unrecognized function if there is one, else at `node` for `why`."""
        if region is None or not region.exits:
            return Chain(tuple(steps), node, why)
        end = region.nodes[region.exits[0]]
        why = "the function that ends here equals no activation of the table"
        if not self._recogniser.has_no_others(entry.activations):
            why = f"the function that ends here equals no activation that may follow {entry.name}"
        return Chain(tuple(steps), end, why, partial(self._nearest, region, entry))

    def _nearest(self, region: ElementwiseRegion, entry: AnchorKind) -> str:
        recogniser = self._recogniser.restricted(entry.activations)
        probes = recogniser.probes(region.constants)
        nearest = recogniser.nearest(probes, region.evaluate(probes)[0], _tolerance(region))
        return nearest.sentence() if nearest is not None else "the table has none"

    def _activation(
        self, region: ElementwiseRegion, entry: AnchorKind, destination: tuple[Dimension, ...]
    ) -> Step | None:
        """The step for the furthest exit of the region that is an activation that the entry allows."""
        known = self._recall(region, entry)
        return None if known is None else Step(region.nodes[: known.exit + 1], known.post_ops, destination)

    def _recall(self, region: ElementwiseRegion, entry: AnchorKind) -> KnownFunction | None:
        """The recognized function of the region; cached."""
        key = (entry.activations, region.structure())
        known = self._known_functions.get(key, _UNKNOWN)
        if known is _UNKNOWN:
            found = self._recognise(region, self._recogniser.restricted(entry.activations))
            known = None if found is None else KnownFunction(found[0], found[1].name, _post_ops(found[1]))
            if len(self._known_functions) >= _MOST_FUNCTIONS:
                self._known_functions.clear()
            self._known_functions[key] = known
        return known

    def _recognise(self, region: ElementwiseRegion, recogniser: Recogniser) -> tuple[int, Recognised] | None:
        probes = recogniser.probes(region.constants)
        values = region.evaluate(probes)
        tolerance = _tolerance(region)
        for position, result in zip(reversed(region.exits), reversed(values), strict=True):
            recognised = recogniser.recognise(probes, result, tolerance)
            if recognised is not None:
                return position, recognised
        return None

    def _binary(
        self,
        anchor: Anchor,
        current: Node,
        destination: tuple[Dimension, ...],
        operand_of: OperandFinder,
    ) -> Step | str:
        """The step for the value's only user, a binary instruction; a sentence: the reason why there is none."""
        user = current.users[0]
        binary = self._binaries.get(user.opcode)
        if binary is None or binary.name not in anchor.entry.binaries:
            return _why_no_binary(user.opcode, binary, anchor.entry)
        if user.shape.strides != current.shape.strides:
            return f"{user.opcode} changes the layout"
        if user.shape.element_type not in COMPUTED_TYPES or user.operands[0] is user.operands[1]:
            return f"{user.opcode} of {user.shape.element_type} is no binary epilogue"
        swapped = user.operands[1] is current
        other = user.operands[0] if swapped else user.operands[1]
        if other.shape.element_type not in COMPUTED_TYPES:
            return f"the other operand is {other.shape.element_type}"
        algorithm = binary.algorithm
        before: tuple[PostOp, ...] = ()
        symbol = _SYMBOLS.get(user.opcode, user.opcode)
        pattern = f"({{}} {symbol} {{operand}})"
        if swapped and not binary.commutative:
            if binary.reversed is None:
                return f"the value is the second operand of {user.opcode}"
            first = binary.reversed.first
            before = (PostOp("eltwise", first.algorithm, "{}", number(first.alpha, {}), number(first.beta, {})),)
            algorithm, pattern = binary.reversed.then, f"({{operand}} {symbol} {{}})"
        view = operand_of(user, other, anchor.entry.numerics)
        if view is None:
            return _why_no_operand(other, anchor.entry)
        dimensions = _operand_dimensions(view.dimensions, user.shape, destination)
        if dimensions is None:
            return "the other operand repeats along a part of a dimension"
        post_op = PostOp("binary", algorithm, pattern, operand=View(view.node, dimensions))
        return Step((user,), (*before, post_op), destination)


@lru_cache(maxsize=4096)
def _operand_dimensions(
    dimensions: tuple[Dimension, ...], shape: Shape, destination: tuple[Dimension, ...]
) -> tuple[Dimension, ...] | None:
    """The dimensions of a binary's operand, which are those of its shape, in the primitive's result."""
    projected = project_dimensions(dimensions, shape, destination)
    return None if projected is None else with_dense_strides(projected, destination)


def _post_ops(recognised: Recognised) -> tuple[PostOp, ...]:
    """The post-ops of an activation; the identity has none."""
    if recognised.is_identity:
        return ()
    formula = f"{recognised.describe()}({{}})" if not recognised.parameters else f"{recognised.describe()}[{{}}]"
    return (PostOp("eltwise", recognised.algorithm, formula, recognised.alpha, recognised.beta),)


def _ended_chain(steps: Sequence[Step], current: Node, is_materialized: Callable[[Node], bool]) -> Chain | None:
    """The chain, where nothing can follow its last value; None: something might."""
    if not current.users or is_materialized(current):
        return Chain(tuple(steps), None, "the value is needed in memory")
    if current.shape.element_type in WRAPPING_TYPES - INTEGER_TYPES and current.users[0].opcode != "bitcast":
        return Chain(tuple(steps), current.users[0], "the value stays integer")
    if current.shape.element_type in INTEGER_TYPES:
        return Chain(tuple(steps), current.users[0], "the value is rounded to integers here")
    return None


def _refused_by_entry(entry: AnchorKind, parts: Sequence[Step], post_ops: int) -> tuple[Node, str] | None:
    """The instruction and the reason for which a chain ends before these steps; None: they extend it."""
    if post_ops > (longest := entry.longest_chain):
        return parts[0].nodes[0], f"{entry.name} takes {longest} {'post-op' if longest == 1 else 'post-ops'}"
    for part in parts:
        nodes = part.nodes
        kind = nodes[-1].shape.element_type
        if not entry.gives(kind):
            return nodes[-1], f"{entry.name} does not give {kind}"
        for node in nodes:
            if node.has_control_predecessors:
                return node, "the instruction has control predecessors"
    return None


def _why_no_operand(other: Node, entry: AnchorKind) -> str:
    """The reason why no kernel can read the other operand of a binary instruction."""
    if other.shape.element_type not in entry.numerics:
        return f"the other operand is {other.shape.element_type}, which {entry.name} does not read"
    return "the other operand is not in memory, and writing it there would cost more than it saves"


def _why_shared(value: Node) -> str:
    """The reason why a chain ends at a value with several users."""
    if all(user.opcode == "slice" for user in value.users):
        return f"{len(value.users)} slices share the value, and it is computed once: the value is used more than once"
    return "the value is used more than once"


def _why_no_binary(opcode: str, binary: Binary | None, entry: AnchorKind) -> str:
    """The reason why neither the table nor the anchor's entry has a binary for an instruction."""
    if not entry.longest_chain:
        return "the kernel has no post-ops"
    if binary is not None:
        return f"{binary.name} may not follow {entry.name}"
    if opcode in ANCHORS:
        return f"the next {opcode} reads the value"
    if opcode == "select":
        # oneDNN has a select by a mask of bytes. Writing the mask and the dearer post-op made training steps of
        # convolutional networks 1 to 15 % slower than a loop behind the call.
        return "XLA's own loop is faster at a select than the kernel"
    if opcode == "slice":
        return "the slice that follows keeps a part of the value, and the steps ahead of it are computed on all of it"
    return f"{opcode} is neither an activation of the table nor a binary epilogue"


_SYMBOLS = {"add": "+", "subtract": "-", "multiply": "·", "divide": "/", "maximum": "max", "minimum": "min"}


def _tolerance(region: ElementwiseRegion) -> float:
    types = {node.shape.element_type for node in (region.entry, *region.nodes)}
    # XLA spells constants in the narrow type it rounds to between the steps.
    return max(TOLERANCES[kind] for kind in types & set(TOLERANCES))


def _with_widening_apart(step: Step) -> list[Step]:
    """The step, with a widening at its end as a separate step, so that a match may end in front of it."""
    nodes = step.nodes
    if len(nodes) == 1 or not is_widening(nodes[-1]):
        return [step]
    return [step._replace(nodes=nodes[:-1]), Step(nodes[-1:], (), step.destination)]


def _is_inner(value: Node, is_owned: Callable[[Node], bool], is_materialized: Callable[[Node], bool]) -> bool:
    """Whether the value's only user reads it, so that it need not be materialized."""
    return len(value.users) == 1 and not is_materialized(value) and not is_owned(value.users[0])


def _no_op_step(current: Node, user: Node, destination: tuple[Dimension, ...]) -> Step | None:
    """A step without post-op, which only renames or rounds the value."""
    if user.opcode == "bitcast" and user.shape.element_type == current.shape.element_type:
        return Step((user,), (), destination)
    same_places = user.shape.strides == current.shape.strides
    if user.opcode != "convert" or not same_places:
        return None
    if user.shape.element_type in COMPUTED_TYPES or quantizes(user):
        return Step((user,), (), destination)
    return None


def _integers(
    anchor: Anchor,
    current: Node,
    user: Node,
    destination: tuple[Dimension, ...],
    operand_of: OperandFinder,
) -> Step | None:
    """A step that adds integers, where the anchor's entry allows additions."""
    if "add" not in anchor.entry.binaries:
        return None
    return add_of_integers(current, user, destination, operand_of)


def _rearranged(anchor: Anchor, current: Node, user: Node, destination: tuple[Dimension, ...]) -> Step | None:
    """A transpose or a change of layout that the primitive applies by writing its result with other strides.

    Of the kernels with post-ops only a matrix product does that at full speed, and only along rows that stay
    contiguous; one that reorders its result anyway writes it in any order.
    """
    reorders = anchor.kernel_specific_step is not None
    if not (reorders or anchor.node.opcode == "dot") or user.opcode not in ("copy", "transpose"):
        return None
    strides = list(user.shape.strides)
    if user.opcode == "transpose":
        for position, number in enumerate(user.proto.dimensions):
            strides[number] = user.shape.strides[position]
    moved = rebase_dimensions(destination, current.shape, strides)
    if moved is None or not (reorders or moved[-1][0] == 1 or moved[-1][1] == 1):
        return None
    return Step((user,), (), with_dense_strides(moved, moved))
