"""Spellings: one expression of a pattern, preprocessed for matching, and the bindings of its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.match.elementwise_region import ElementwiseRegion
from hlo_dispatch.match.structural.expression_peeling import ExpressionPeeling
from hlo_dispatch.pattern import TOLERANCES, Recogniser
from hlo_dispatch.pattern.constraints import Condition
from hlo_dispatch.pattern.expression import Expression, Operation, terms
from hlo_dispatch.pattern.read_expression import RESULT
from hlo_dispatch.pattern.recognise import Recognised
from hlo_dispatch.pattern.structure import Pattern

_MAX_CACHED = 100_000
"""Functions remembered: real programs repeat a few hundred."""


class Spelling:
    """One expression of a pattern, preprocessed for matching."""

    def __init__(self, pattern: Pattern, expression: Expression, recognisers: Mapping[str, Recogniser]) -> None:
        self.pattern, self.expression = pattern, expression
        self._recognisers = recognisers
        operations = [term for term in terms(expression.root) if isinstance(term, Operation)]
        self.peeling = ExpressionPeeling(is_elementwise=all(term.meaning.opcode in ELEMENTWISE for term in operations))
        self.conditions: dict[str, list[Condition]] = {}
        """Name → constraints that are checked as soon as it is bound."""
        self.deferred_conditions: list[tuple[str, Condition]] = []
        """Constraints that are checked after all names are bound."""
        self.any_layout: set[str] = set()
        for name, conditions in pattern.where.items():
            for condition in conditions:
                if condition.name == "any_layout":
                    self.any_layout.add(name)
                is_late = condition.constraint.names_value or (name == RESULT and not condition.constraint.operations)
                if is_late:
                    self.deferred_conditions.append((name, condition))
                else:
                    self.conditions.setdefault(name, []).append(condition)
        self.least_elements = 0 if pattern.has_near_misses else _least_elements(pattern)
        """Elements of the largest value of any graph with a match; 0 where reports tell how far it came without one."""
        self._recognised_functions: dict[tuple[object, ...], Recognised | None] = {}

    def recognise(self, activation: str, region: ElementwiseRegion) -> Recognised | None:
        """The activation with its parameters if the region computes it; cached by function."""
        key = (activation, region.structure())
        if key in self._recognised_functions:
            return self._recognised_functions[key]
        recogniser = self._recognisers[activation]
        probes = recogniser.probes(region.constants)
        kinds = {node.shape.element_type for node in (region.entry, *region.nodes)} & set(TOLERANCES)
        (values,) = region.evaluate(probes)
        found = recogniser.recognise(probes, values, max(TOLERANCES[kind] for kind in kinds))
        if found is not None and found.name != activation:
            found = None
        if len(self._recognised_functions) < _MAX_CACHED:
            self._recognised_functions[key] = found
        return found


@dataclass(frozen=True)
class ParameterValue:
    """An activation's parameter, as constraints see it."""

    scalar: float
    shape: object


@dataclass
class BoundNames:
    """The bindings of names so far, and the covered instructions."""

    values: dict[str, Node] = field(default_factory=dict[str, Node])
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    covered: dict[Node, None] = field(default_factory=dict[Node, None])
    matched: int = 0

    def copy(self) -> BoundNames:
        return BoundNames(dict(self.values), dict(self.numbers), dict(self.covered), self.matched)

    # The interface of constraints and facts.

    def constant(self, node: Node | ParameterValue) -> float | None:
        return node.scalar if isinstance(node, ParameterValue) else scalar_constant(node)

    def named(self, name: str) -> Node:
        return self.values[name]

    def number(self, name: str) -> float:
        if name in self.numbers:
            return self.numbers[name]
        value = scalar_constant(self.values[name])
        assert value is not None, f"{name} was to be a constant"
        return value


def _least_elements(pattern: Pattern) -> int:
    sizes = (c.argument for conditions in pattern.where.values() for c in conditions if c.name == "size_at_least")
    return max((size for size in sizes if isinstance(size, int)), default=0)
