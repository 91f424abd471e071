"""The epilogue of an anchor: the chain of elementwise steps that a primitive can take as post-ops.

From the anchor's result the chain takes, one after another, a unary region that the table knows as an
activation (the farthest exit that fits), or a binary instruction whose other operand does not depend on the
anchor, or a change of shape or type that costs nothing. Every value inside the chain has all its users
inside, so the chain can be replaced by one instruction without computing anything twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.hlo.opcode import ANCHORS
from hlo_dispatch.match.anchor import COMPUTED_TYPES, Anchor
from hlo_dispatch.match.function import Region, grow_region
from hlo_dispatch.match.strided import HALF_TYPES, Dimension, View, candidates, dense, project, restate, whole
from hlo_dispatch.pattern import TOLERANCES
from hlo_dispatch.pattern.recognise import number

_OPERAND_LOOK_THROUGH = frozenset(("bitcast", "broadcast", "convert"))
_SMALL_BYTES = 64 * 1024
MAXIMUM_POST_OPS = 32


@dataclass(frozen=True)
class PostOp:
    """One step that the primitive computes on its result."""

    kind: str
    """"eltwise" or "binary"."""
    algorithm: str
    """The kernel library's name for it."""
    formula: str
    """With `{}` where the value so far stands and `{operand}` where the other operand stands."""
    alpha: float = 0.0
    beta: float = 0.0
    operand: View | None = None
    """A binary step's other operand, in the dimensions of the primitive's result (size 1: it repeats)."""


@dataclass(frozen=True)
class Step:
    """What the chain took at once: instructions, and the post-ops (possibly none) that compute them."""

    nodes: tuple[Node, ...]
    post_ops: tuple[PostOp, ...]
    destination: tuple[Dimension, ...]
    """The primitive's result dimensions over the buffer of the step's result."""
    attributes: Mapping[str, int] = field(default_factory=dict, hash=False, compare=False)
    """The kernel's attributes that are others from this step on."""

    @property
    def result(self) -> Node:
        return self.nodes[-1]


@dataclass(frozen=True)
class Chain:
    """An anchor's epilogue as far as it goes, and why it goes no further."""

    steps: tuple[Step, ...]
    stopped_at: Node | None
    """The instruction at which it stopped; None: nothing could have followed."""
    why: str
    nearest: Callable[[], str] | None = field(default=None, hash=False, compare=False)
    """Set where a function of one variable stopped it: says which activation came closest. Slow."""

    def explanation(self) -> str:
        """`why`, with the nearest miss where there is one; slow, for people who ask."""
        return self.why if self.nearest is None else f"{self.why}: {self.nearest()}"


class EpilogueFinder:
    """Grows chains with one table's activations and binaries; remembers the functions it has recognised."""

    def __init__(self, recogniser, binaries) -> None:
        self._recogniser = recogniser
        self._binaries = binaries
        self._known: dict[tuple, object] = {}

    def grow(
        self,
        anchor: Anchor,
        is_taken: Callable[[Node], bool],
        is_needed: Callable[[Node], bool],
        is_result_of_another: Callable[[Node, Node], bool],
    ) -> Chain:
        """The longest chain from `anchor`.

        Args:
            is_taken: instructions that another match owns.
            is_needed: values that must be in memory (the computation's result, another call's operand).
            is_result_of_another: (value, anchor) → whether another anchor's chain can end in `value`, so
                that it will be in memory although XLA had fused it away.
        """
        steps: list[Step] = []
        current = anchor.node
        destination = anchor.destination
        post_ops = 0
        while True:
            if not current.users or is_needed(current):
                return Chain(tuple(steps), None, "the value is needed in memory")
            region = grow_region(current, is_taken, is_needed) if anchor.own_steps is None else None
            step = self._activation(region, destination) if region is not None and region.exits else None
            if step is None:
                if len(current.users) > 1:
                    return self._stopped(steps, region, current, "the value is used more than once")
                user = current.users[0]
                if is_taken(user):
                    return Chain(tuple(steps), user, "another match has taken this instruction")
                step = _free(current, user, destination) or _rearranged(anchor, current, user, destination)
            if step is None and anchor.own_steps is not None:
                is_inner = partial(_is_inner, is_taken=is_taken, is_needed=is_needed)
                step = anchor.own_steps(current, destination, steps, is_inner) or "the kernel has no post-ops"
            if step is None:
                step = self._binary(anchor, current, destination, is_taken, is_result_of_another)
            if isinstance(step, str):
                return self._stopped(steps, region, current.users[0], step)
            post_ops += len(step.post_ops)
            if post_ops > MAXIMUM_POST_OPS:
                return Chain(tuple(steps), step.nodes[0], f"a primitive takes {MAXIMUM_POST_OPS} post-ops")
            steps.append(step)
            current, destination = step.result, step.destination

    def _stopped(self, steps: list[Step], region: Region | None, node: Node, why: str) -> Chain:
        """The chain that ends here: at a function nobody knows if there is one, else at `node` for `why`."""
        if region is None or not region.exits:
            return Chain(tuple(steps), node, why)
        end = region.nodes[region.exits[0]]
        why = "the function that ends here equals no activation of the table"
        return Chain(tuple(steps), end, why, partial(self._nearest, region))

    def _nearest(self, region: Region) -> str:
        probes = self._recogniser.probes(region.constants)
        nearest = self._recogniser.nearest(probes, region.evaluate(probes)[0], _tolerance(region))
        return nearest.sentence() if nearest is not None else "the table has none"

    def _activation(self, region: Region, destination: tuple[Dimension, ...]) -> Step | None:
        """The farthest exit of the region that is an activation of the table."""
        structure = region.structure()
        if structure not in self._known:
            self._known[structure] = self._recognise(region)
        known = self._known[structure]
        if known is None:
            return None
        position, recognised = known
        nodes = region.nodes[: position + 1]
        if recognised.is_identity:
            return Step(nodes, (), destination)
        formula = f"{recognised.describe()}({{}})" if not recognised.parameters else f"{recognised.describe()}[{{}}]"
        post_op = PostOp("eltwise", recognised.algorithm, formula, recognised.alpha, recognised.beta)
        return Step(nodes, (post_op,), destination)

    def _recognise(self, region: Region):
        probes = self._recogniser.probes(region.constants)
        values = region.evaluate(probes)
        tolerance = _tolerance(region)
        for position, result in zip(reversed(region.exits), reversed(values), strict=True):
            recognised = self._recogniser.recognise(probes, result, tolerance)
            if recognised is not None:
                return position, recognised
        return None

    def _binary(
        self,
        anchor: Anchor,
        current: Node,
        destination: tuple[Dimension, ...],
        is_taken: Callable[[Node], bool],
        is_result_of_another: Callable[[Node, Node], bool],
    ) -> Step | str:
        """The step of the value's one user, a binary instruction, or the sentence why it is none."""
        user = current.users[0]
        binary = self._binaries.get(user.opcode)
        if user.opcode in ANCHORS:
            return f"the next {user.opcode} reads the value"
        if binary is None:
            return f"{user.opcode} is neither an activation of the table nor a binary epilogue"
        if user.shape.strides != current.shape.strides:
            return f"{user.opcode} changes the layout"
        if user.shape.element_type not in COMPUTED_TYPES or user.operands[0] is user.operands[1]:
            return f"{user.opcode} of {user.shape.element_type} is no binary epilogue"
        swapped = user.operands[1] is current
        other = user.operands[0] if swapped else user.operands[1]
        if other.shape.element_type not in COMPUTED_TYPES:
            return f"the other operand is {other.shape.element_type}"
        algorithm, before = binary.algorithm, ()
        symbol = _SYMBOLS.get(user.opcode, user.opcode)
        pattern = f"({{}} {symbol} {{operand}})"
        if swapped and not binary.commutative:
            if binary.reversed is None:
                return f"the value is the second operand of {user.opcode}"
            first = binary.reversed.first
            before = (PostOp("eltwise", first.algorithm, "{}", number(first.alpha, {}), number(first.beta, {})),)
            algorithm, pattern = binary.reversed.then, f"({{operand}} {symbol} {{}})"
        view = _operand(user, other, is_taken, lambda node: is_result_of_another(node, anchor.node))
        if view is None:
            return "the other operand is not in memory, and writing it there would cost more than it saves"
        dimensions = project(view, user.shape, destination)
        if dimensions is None:
            return "the other operand repeats along a part of a dimension"
        post_op = PostOp("binary", algorithm, pattern, operand=View(view.node, dense(dimensions, destination)))
        return Step((user,), (*before, post_op), destination)


_SYMBOLS = {"add": "+", "subtract": "-", "multiply": "·", "divide": "/", "maximum": "max", "minimum": "min"}


def _tolerance(region: Region) -> float:
    types = {node.shape.element_type for node in (region.entry, *region.nodes)}
    # XLA spells constants in the narrow type it rounds to between the steps.
    return max(TOLERANCES[kind] for kind in types & set(TOLERANCES))


def _usable(view: View) -> bool:
    return view.element_type in COMPUTED_TYPES


def _operand(
    user: Node, other: Node, is_taken: Callable[[Node], bool], will_be_result: Callable[[Node], bool]
) -> View | None:
    """The other operand of `user` where it lies in memory, or is small enough to be put there.

    Where it is only found as it was before it was rounded to half precision, it is read so: XLA rounds between the
    steps of half precision programs, and a kernel does not.
    """
    exact = [view for view in candidates(whole(other), _OPERAND_LOOK_THROUGH) if _usable(view)]
    unrounded = _before_rounding(exact[-1]) if exact else []
    for views in (exact, unrounded):
        for view in reversed(views):
            if (in_memory := _in_memory(view, is_taken)) is not None:
                return in_memory
    smallest = min(exact, key=lambda view: view.node.shape.bytes, default=None)
    if smallest is None:
        return None
    if smallest.node.shape.bytes * 8 <= user.shape.bytes or smallest.node.shape.bytes <= _SMALL_BYTES:
        return smallest
    return next((view for view in (*exact, *unrounded) if will_be_result(view.node)), None)


def _in_memory(view: View, is_taken: Callable[[Node], bool]) -> View | None:
    """The view over a top-level instruction's result: the node's own, or the same bytes under another shape."""
    if view.node.top is not None:
        return view
    for user in view.node.users:
        same_bytes = user.opcode == "bitcast" and user.shape.element_type == view.element_type
        if same_bytes and user.top is not None and not is_taken(user):
            return View(user, view.dimensions)
    return None


def _before_rounding(view: View) -> list[View]:
    """Every usable view of the elements that the view's node rounds, nearest first; none where it rounds nothing."""
    node = view.node
    if node.opcode != "convert" or node.shape.element_type not in HALF_TYPES:
        return []
    source = node.operands[0]
    dimensions = restate(view.dimensions, node.shape, source.shape.strides)
    if source.shape.element_type != "f32" or dimensions is None:
        return []
    return [view for view in candidates(View(source, dimensions), _OPERAND_LOOK_THROUGH) if _usable(view)]


def _is_inner(value: Node, is_taken: Callable[[Node], bool], is_needed: Callable[[Node], bool]) -> bool:
    """Whether only its one user reads the value, so that it need not exist."""
    return len(value.users) == 1 and not is_needed(value) and not is_taken(value.users[0])


def _free(current: Node, user: Node, destination: tuple[Dimension, ...]) -> Step | None:
    """A step that only renames or rounds the value: no post-op."""
    if user.opcode == "bitcast" and user.shape.element_type == current.shape.element_type:
        return Step((user,), (), destination)
    same_places = user.shape.strides == current.shape.strides
    if user.opcode == "convert" and user.shape.element_type in COMPUTED_TYPES and same_places:
        return Step((user,), (), destination)
    return None


def _rearranged(anchor: Anchor, current: Node, user: Node, destination: tuple[Dimension, ...]) -> Step | None:
    """A transpose or a change of layout that the primitive does by writing its result with other strides.

    Of the kernels with post-ops only a matrix product does that at full speed, and only along rows that stay
    contiguous; one that reorders its result anyway writes it in any order.
    """
    reorders = anchor.own_steps is not None
    if not (reorders or anchor.node.opcode == "dot") or user.opcode not in ("copy", "transpose"):
        return None
    strides = list(user.shape.strides)
    if user.opcode == "transpose":
        for position, number in enumerate(user.proto.dimensions):
            strides[number] = user.shape.strides[position]
    moved = restate(destination, current.shape, strides)
    if moved is None or not (reorders or moved[-1][0] == 1 or moved[-1][1] == 1):
        return None
    return Step((user,), (), dense(moved, moved))
