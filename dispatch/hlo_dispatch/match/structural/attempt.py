"""Match attempt: one spelling of a structural pattern at one instruction.

Terms are matched from the result towards the operands, with backtracking over operand orders of commutative operations
and over activations. The deepest partial match is recorded for the nearest-miss message.
"""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING_AND_SHAPES
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import full_view
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.ir.shape import FLOAT_TYPES, HALF_TYPES
from hlo_dispatch.match.argmax import starts_for, why_no_place
from hlo_dispatch.match.elementwise_region import ElementwiseRegion
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.reduction import NEUTRAL_MAXIMUM_BOUND, applied_by, windows_before
from hlo_dispatch.match.structural.expression_peeling import is_degenerate_broadcast, peeled_converts
from hlo_dispatch.match.structural.nearest_miss import NearestMiss
from hlo_dispatch.match.structural.spelling import BoundNames, ParameterValue, Spelling
from hlo_dispatch.pattern.constraints import PLACES, REDUCERS, Condition, close, is_row_major
from hlo_dispatch.pattern.expression import (
    COMMUTATIVE,
    MIRRORED,
    ActivationCall,
    AnyOf,
    Capture,
    Number,
    Operation,
    Term,
)
from hlo_dispatch.pattern.facts import MissingDimension, evaluate
from hlo_dispatch.pattern.read_expression import RESULT
from hlo_dispatch.pattern.recognise import Recognised

_MAX_STEPS = 2_000

RegionCache = dict[tuple[bool, Node], tuple[ElementwiseRegion, ...]]
"""The regions that end in a node, by the expression's peeling policy; attempts at one graph share them."""

Goals = tuple[Term, Node, "Goals"] | None


Why = tuple[str, *tuple[object, ...]]
"""A template, and what it is filled with; nodes give their names."""


class Attempt:
    """One attempt to match a spelling with its root at one node; used once."""

    def __init__(self, spelling: Spelling, graph: FlatGraph, root: Node, regions: RegionCache) -> None:
        self._graph, self._root, self._output, self._regions = graph, root, _rounded(root), regions
        self._spelling, self._peeling = spelling, spelling.peeling
        self._steps = 0
        self.matched = 0
        """Number of matched operations in the deepest partial match."""
        self._stopped_chain: tuple[Node, str, tuple[object, ...]] | None = None

    @property
    def pattern(self) -> str:
        """The pattern's name."""
        return self._spelling.pattern.name

    def match(self) -> Match | None:
        """The match; None: `matched` and `miss()` then describe the deepest partial match."""
        output = self._output
        bound = BoundNames(values={RESULT: output}, covered={output: None})
        return self._solve((self._spelling.expression.root, self._root, None), bound)

    def miss(self) -> NearestMiss:
        """The nearest miss; only after an attempt that failed with something matched."""
        assert self._stopped_chain is not None
        return NearestMiss(self._spelling.pattern, self.matched, *self._stopped_chain)

    def _fail(self, bound: BoundNames, node: Node, why: str, *arguments: object) -> None:
        """Records a partial match; `why` is a template and `arguments` its values, as in `NearestMiss`."""
        if bound.matched > self.matched:
            self.matched = bound.matched
            self._stopped_chain = node, why, arguments

    # --- terms ------------------------------------------------------------------------------------

    def _solve(self, goals: Goals, bound: BoundNames) -> Match | None:
        if goals is None:
            return self._check_and_build(bound)
        self._steps += 1
        term, node, rest = goals
        if self._steps > _MAX_STEPS:
            return self._fail(bound, node, "there are too many ways to try")
        if isinstance(term, Capture):
            return self._capture(term, node, rest, bound)
        if isinstance(term, Number):
            value = scalar_constant(node)
            if value is None or not close(value, term.value, node.shape.element_type):
                return self._fail(bound, node, "%{0} is not the number {1}", node, term)
            return self._solve(rest, bound)
        if term.name and term.name != RESULT and term.name in bound.values:
            if not self._peeling.is_same_value(bound.values[term.name], node):
                return self._fail(bound, node, "%{0} is not {1} again", node, term.name)
            return self._solve(rest, bound)
        if isinstance(term, Operation):
            return self._operation(term, node, rest, bound)
        if isinstance(term, AnyOf):
            return self._any_of(term, node, rest, bound)
        return self._applied(term, node, rest, bound)

    def _capture(self, term: Capture, node: Node, rest: Goals, bound: BoundNames) -> Match | None:
        name = term.name
        known = bound.values.get(name)
        if known is not None:
            if not self._peeling.is_same_value(known, node):
                return self._fail(bound, node, "%{0} is not {1} again", node, name)
            return self._solve(rest, bound)
        conditions = self._spelling.conditions.get(name, ())
        unmet: Condition | None = None
        for candidate in reversed(peeled_converts(node)):
            unmet = next((c for c in conditions if not c.constraint.holds(candidate, c.argument, bound)), None)
            if unmet is None and self._has_type(name, candidate):
                further = bound.copy()
                further.values[name] = candidate
                return self._solve(rest, further)
        if unmet is not None:
            return self._fail(bound, node, "%{0} is {1}, but {2} {3}", node, node.shape, name, unmet)
        template = "%{0} is {1} and the result {2}: say dtype of {3} if the kernel takes that"
        return self._fail(bound, node, template, node, node.shape, self._output.shape, name)

    def _has_type(self, name: str, candidate: Node) -> bool:
        """Whether a kernel's floating operand has the result's element type, unless the pattern declares another."""
        if name not in self._spelling.pattern.operands.values():
            return True
        if any(condition.name == "dtype" for condition in self._spelling.conditions.get(name, ())):
            return True
        kind = candidate.shape.element_type
        return kind == self._output.shape.element_type or kind not in FLOAT_TYPES | {"f64"}

    def _any_of(self, term: AnyOf, node: Node, rest: Goals, bound: BoundNames) -> Match | None:
        if term.name and term.name != RESULT:
            bound = bound.copy()
            bound.values[term.name] = node
            for condition in self._spelling.conditions.get(term.name, ()):
                if not condition.constraint.holds(node, condition.argument, bound):
                    return self._fail(bound, node, "%{0} is {1}, but {2} {3}", node, node.shape, term.name, condition)
        for alternative in term.alternatives:
            match = self._solve((alternative, node, rest), bound)
            if match is not None:
                return match
        return None

    def _operation(self, term: Operation, node: Node, rest: Goals, bound: BoundNames) -> Match | None:
        meaning = term.meaning
        if node.opcode != meaning.opcode and node.opcode not in PEEL_ROUNDING_AND_SHAPES:
            return self._fail(bound, node, "%{0} is {1}, not {2}", node, node.opcode, term.word)
        path = self._path_to(meaning.opcode, node)
        found = path[-1]
        if found.opcode != meaning.opcode and not (meaning.opcode == "broadcast" and is_degenerate_broadcast(found)):
            return self._fail(bound, found, "%{0} is {1}, not {2}", found, found.opcode, term.word)
        if term.word in PLACES and not starts_for(term.word, found):
            return self._fail(bound, found, "%{0} is no {1}", found, term.word)
        bound = bound.copy()
        bound.covered.update(dict.fromkeys(path))
        if term.name:
            bound.values.setdefault(term.name, found)
        bound.matched += 1
        unmet = self._unmet(term, found, bound)
        if unmet is not None:
            return self._fail(bound, found, *unmet)
        for operands in self._orders(term, self._first_instruction(term, found, bound)):
            goals = rest
            for argument, operand in zip(reversed(term.arguments), reversed(operands), strict=True):
                goals = (argument, operand, goals)
            match = self._solve(goals, bound)
            if match is not None:
                return match
        return None

    def _path_to(self, opcode: str, node: Node) -> list[Node]:
        """The values under changes of type and shape, up to one of this opcode, if there is one."""
        path = [node]
        while path[-1].opcode != opcode and self._peeling.can_peel(path[-1]):
            path.append(path[-1].operands[0])
        return _peeled_to_broadcast(path) if path[-1].opcode != opcode and opcode == "broadcast" else path

    def _first_instruction(self, term: Operation, found: Node, bound: BoundNames) -> Node:
        """The instruction that reads the operands: the one whose part `found` is, windows in front of it, or itself."""
        before = found.operands[:1] if term.meaning.part_of else ()
        if found.opcode == "reduce":
            before = windows_before(found, self._graph, applied_by(found, self._graph))
        bound.covered.update(dict.fromkeys(before))
        return before[-1] if before else found

    def _unmet(self, term: Operation, found: Node, bound: BoundNames) -> Why | None:
        if term.word in PLACES and (why := why_no_place(term.word, found, self._graph)):
            return "%{0} is no {1}: {2}", found, term.word, why
        for condition in (*term.conditions, *self._spelling.conditions.get(term.name, ())):
            if not condition.constraint.holds(found, condition.argument, bound):
                return "%{0} is {1}, but {2} {3}", found, found.shape, term.name or term.word, condition
        if found.opcode == "reduce":
            return self._why_wrong_reduction(term, found)
        if found.opcode in ELEMENTWISE:
            for operand in found.operands:
                if operand.shape.strides != found.shape.strides and scalar_constant(operand) is None:
                    return "%{0} changes the layout of %{1}", found, operand
        return None

    def _why_wrong_reduction(self, term: Operation, found: Node) -> Why | None:
        reducer, neutral = REDUCERS[term.word]
        if applied_by(found, self._graph) != reducer:
            return "%{0} does not reduce by {1}", found, reducer
        start = scalar_constant(found.operands[1]) if len(found.operands) == 2 else None
        lowest = neutral < 0 and start is not None and start <= NEUTRAL_MAXIMUM_BOUND
        highest = neutral > 1 and start is not None and start >= -NEUTRAL_MAXIMUM_BOUND
        if start != neutral and not lowest and not highest:
            return "%{0} does not start from {1}", found, neutral
        return None

    def _orders(self, term: Operation, found: Node) -> list[tuple[Node, ...]]:
        """The operand orders to try."""
        meaning, operands = term.meaning, found.operands
        if meaning.opcode == "reduce" or meaning.part_of:
            return [operands[:1]]
        if meaning.opcode == "compare":
            direction = found.proto.comparison_direction
            straight = [operands] if direction == meaning.detail else []
            mirrored = [operands[::-1]] if direction == MIRRORED[meaning.detail] else []
            return straight + mirrored
        if meaning.opcode in COMMUTATIVE and operands[0] is not operands[1]:
            return [operands, operands[::-1]]
        return [operands]

    def _applied(self, term: ActivationCall, node: Node, rest: Goals, bound: BoundNames) -> Match | None:
        found_one = False
        key = self._peeling.is_elementwise, node
        if key not in self._regions:
            self._regions[key] = tuple(self._peeling.regions(node))
        for region in self._regions[key]:
            recognised = self._spelling.recognise(term.activation, region)
            if recognised is None:
                continue
            found_one = True
            further = bound.copy()
            further.covered.update(dict.fromkeys(region.nodes))
            if term.name:
                further.values.setdefault(term.name, node)
            further.matched += 1
            why = self._why_wrong_parameters(term, recognised, node, further)
            if why is not None:
                self._fail(further, node, *why)
                continue
            match = self._solve((term.argument, region.entry, rest), further)
            if match is not None:
                return match
        if not found_one:
            self._fail(bound, node, "%{0} is not {1} of anything", node, term.activation)
        return None

    def _why_wrong_parameters(
        self, term: ActivationCall, recognised: Recognised, node: Node, bound: BoundNames
    ) -> Why | None:
        kind = node.shape.element_type
        for expected, (parameter, value) in zip(term.parameters, recognised.parameters.items(), strict=True):
            if not isinstance(expected, str):
                if not close(value, expected, kind):
                    return "{0} of {1} is {2:g}, not {3:g}", parameter, term.activation, value, expected
                continue
            bound.numbers[expected] = value
            number = ParameterValue(value, node.shape)
            for condition in self._spelling.conditions.get(expected, ()):
                if not condition.constraint.holds(number, condition.argument, bound):
                    return "{0} is {1:g}, but {0} {2}", expected, value, condition
        for condition in (*term.conditions, *self._spelling.conditions.get(term.name, ())):
            if not condition.constraint.holds(node, condition.argument, bound):
                return "%{0} is {1}, but {2} {3}", node, node.shape, term.name or term.activation, condition
        return None

    # --- full match -------------------------------------------------------------------------------

    def _check_and_build(self, bound: BoundNames) -> Match | None:
        """Checks the conditions on the full match, and builds it."""
        spelling, output = self._spelling, self._output
        for name, condition in spelling.deferred_conditions:
            value = bound.values.get(name)
            if value is not None and not condition.constraint.holds(value, condition.argument, bound):
                return self._fail(bound, value, "%{0} is {1}, but {2} {3}", value, value.shape, name, condition)
        if output.shape.element_type not in spelling.pattern.numerics:
            return self._fail(bound, output, "no numerics are declared for {0}", output.shape.element_type)
        operands = {role: bound.values[name] for role, name in spelling.pattern.operands.items()}
        bound = _without_shared_broadcasts(output, bound)
        why = self._why_not_closed(output, bound) or self._why_unreadable(output, bound)
        if why is not None:
            return self._fail(bound, output, *why)
        try:
            attributes = {name: evaluate(value, bound) for name, value in spelling.pattern.attributes.items()}
            scratch = evaluate(spelling.pattern.scratch, bound) if spelling.pattern.scratch is not None else None
        except MissingDimension as error:
            return self._fail(bound, output, "{0}", str(error))  # not the error, whose traceback has the graph
        covered = tuple(sorted(bound.covered, key=lambda node: node.index))
        return Match(
            entry=spelling.pattern,
            node=output,
            kernels=(spelling.pattern.kernel,),
            kernel=spelling.pattern.kernel,
            operands={role: full_view(node) for role, node in operands.items()},
            results=(output,),
            result_shapes=(output.shape,),
            covered=covered,
            formula=spelling.pattern.formula,
            attributes=lambda: dict(attributes),
            numerics=lambda: spelling.pattern.numerics[output.shape.element_type],
            scratch_bytes=scratch,
        )

    def _why_not_closed(self, output: Node, bound: BoundNames) -> Why | None:
        """The reason why the call cannot replace the covered instructions; None: it can."""
        covered = bound.covered
        for node in covered:
            if node.has_control_predecessors:
                return "%{0} must run after another instruction", node
            if node is output:
                continue
            if node.is_live_out:
                return "%{0} is a result of the program", node
            for user in node.users:
                if user not in covered:
                    return "%{0} is also used by %{1}", node, user
        return None

    def _why_unreadable(self, output: Node, bound: BoundNames) -> Why | None:
        """The reason why the kernel cannot read its operands; None: it can."""
        operands = ((name, bound.values[name]) for name in self._spelling.pattern.operands.values())
        for name, node in (*operands, (RESULT, output)):
            if name != RESULT and node in bound.covered:
                return "%{0} would be both covered and read", node
            if not node.shape.is_array or node.shape.is_dynamic or node.shape.elements == 0:
                return "%{0} is {1}", node, node.shape
            if name not in self._spelling.any_layout and not is_row_major(node.shape):
                return "%{0} is {1}, and {2} must be row-major", node, node.shape, name
        return None


def _without_shared_broadcasts(output: Node, bound: BoundNames) -> BoundNames:
    """The bindings without broadcasts of operands that have other users: the kernel reads the operand."""
    bound = bound.copy()
    for node in sorted(bound.covered, key=lambda node: node.index):
        is_first = node.opcode == "broadcast" and node is not output and bound.covered.keys().isdisjoint(node.operands)
        if is_first and not bound.covered.keys() >= set(node.users):
            del bound.covered[node]
    return bound


def _peeled_to_broadcast(path: list[Node]) -> list[Node]:
    """The path up to a bitcast that XLA wrote for a broadcast, if there is one."""
    return next((path[: place + 1] for place, node in enumerate(path) if is_degenerate_broadcast(node)), path)


def _rounded(node: Node) -> Node:
    """The value in the program's precision: the convert to half precision, where that is the only user."""
    only = node.users[0] if len(node.users) == 1 and not node.is_live_out else None
    if only is None or only.opcode != "convert" or node.shape.element_type != "f32":
        return node
    return only if only.shape.element_type in HALF_TYPES else node
