"""Structural matcher: finds all places in a flat graph where a pattern's expression holds.

Patterns are looked up by a node's opcode and its operands' opcodes, so that nearly every instruction costs
one dictionary lookup. Candidates are matched term by term, with both orders of commutative operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING_AND_SHAPES
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.match.equal_values import maker_of_values
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.match_memo import MakerOf, MatchMemo, maker_of_match
from hlo_dispatch.match.structural.attempt import Attempt, RegionCache
from hlo_dispatch.match.structural.nearest_miss import NearestMiss
from hlo_dispatch.match.structural.spelling import Spelling
from hlo_dispatch.pattern import Recogniser, Table
from hlo_dispatch.pattern.expression import (
    COMMUTATIVE,
    ActivationCall,
    AnyOf,
    Capture,
    Inner,
    Number,
    Operation,
    Term,
    in_every_match,
    terms,
)

_MAX_PEELED = 8


@dataclass
class StructuralMatches:
    """The structural matches and nearest misses of one graph."""

    matches: list[Match] = field(default_factory=list[Match])
    """Highest priority first, then program order; they may overlap."""
    misses: dict[str, NearestMiss] = field(default_factory=dict[str, NearestMiss])
    """Pattern's name → its nearest miss, of the patterns that matched nowhere."""


class StructuralFinder:
    """Finder of one table's structural patterns; created once per table, thread-safe."""

    def __init__(self, table: Table, match: Callable[[Attempt], Match | None] = Attempt.match) -> None:
        """`match` runs an attempt; a profile wraps it."""
        self._match = match
        self._memo = MatchMemo() if match is Attempt.match else MatchMemo(most_recorded=0)
        activations = {
            term.activation
            for pattern in table.patterns
            for expression in pattern.spellings
            for term in terms(expression.root)
            if isinstance(term, ActivationCall)
        }
        recognisers = {name: Recogniser([table.activation(name)]) for name in sorted(activations)}
        self._spellings = [
            Spelling(pattern, expression, recognisers) for pattern in table.patterns for expression in pattern.spellings
        ]
        self._least_elements = sorted({spelling.least_elements for spelling in self._spellings})
        self._possible: dict[tuple[int, tuple[str, ...]], tuple[Spelling, ...]] = {}
        self._root_opcodes = frozenset(
            opcode for spelling in self._spellings for opcode in _opcodes(spelling.expression.root)
        )

        self._ranks = {pattern.name: (-pattern.priority, not pattern.is_user_defined) for pattern in table.patterns}
        self._needed = {_needed(spelling) for spelling in self._spellings}
        self._has_users = any(spelling.pattern.is_user_defined for spelling in self._spellings)

    def __bool__(self) -> bool:
        return bool(self._spellings)

    def may_match(self, opcodes: Set[str]) -> bool:
        """Whether a module with these opcodes can contain a pattern."""
        return any(needed <= opcodes for needed in self._needed) and not self._root_opcodes.isdisjoint(opcodes)

    def find(self, graph: FlatGraph) -> StructuralMatches:
        """Every match in `graph`, and the nearest miss of each pattern that has none."""
        found = StructuralMatches()
        if not (self._has_users or self.may_match({node.opcode for node in graph.nodes})):
            return found  # whoever wrote a pattern also wants to know how far it came
        largest = max((shape.elements for shape in graph.shapes if shape.is_array), default=0)
        sizes = sum(least <= largest for least in self._least_elements)
        misses: dict[str, NearestMiss] = {}
        regions: RegionCache = {}
        for node in graph.nodes:
            if node.opcode not in self._root_opcodes or not (
                node.users or node.is_live_out or node.top_level_id is not None
            ):
                continue
            if not self._candidates(node, sizes):
                continue
            here = self._memo.match(
                node,
                (),
                graph,
                lambda _, node=node: self._at(node, graph, regions, sizes),
                lambda _, node=node: self._at(node, graph, {}, sizes),
                _maker_of_outcomes,
            )
            for outcome in here:
                if isinstance(outcome, Match):
                    found.matches.append(outcome)
                elif outcome.matched > (misses[outcome.pattern.name].matched if outcome.pattern.name in misses else 0):
                    misses[outcome.pattern.name] = outcome
        matched = {match.name for match in found.matches}
        found.misses = {name: miss for name, miss in misses.items() if name not in matched}
        found.matches.sort(key=lambda match: self._ranks[match.name])  # stable
        return found

    def _at(self, node: Node, graph: FlatGraph, regions: RegionCache, sizes: int) -> Sequence[Match | NearestMiss]:
        """The matches at a node, one of each pattern, and the misses of the other spellings that matched in part."""
        found: list[Match | NearestMiss] = []
        done: set[str] = set()
        for spelling in self._candidates(node, sizes):
            if spelling.pattern.name in done:
                continue
            attempt = Attempt(spelling, graph, node, regions)
            match = self._match(attempt)
            if match is not None:
                match.read_nodes()
                found.append(match)
                done.add(spelling.pattern.name)
            elif attempt.matched and spelling.pattern.has_near_misses:
                found.append(attempt.miss())
        return found

    def _candidates(self, node: Node, sizes: int) -> tuple[Spelling, ...]:
        """The spellings that a node's opcode and its operands' fit, of those with the first `sizes` least sizes."""
        opcodes = (node.opcode, *[_opcode_behind(operand) for operand in node.operands])
        candidates = self._possible.get((sizes, opcodes))
        if candidates is None:
            possible = [s for s in self._spellings if s.least_elements in self._least_elements[:sizes]]
            candidates = tuple(s for s in possible if _fits(s.expression.root, opcodes[0], opcodes[1:]))
            self._possible[sizes, opcodes] = candidates
        return candidates


def _maker_of_outcomes(
    found: Sequence[Match | NearestMiss], places: dict[Node, int]
) -> MakerOf[Sequence[Match | NearestMiss]] | None:
    makers = [maker_of_match(o, places) if isinstance(o, Match) else _maker_of_miss(o, places) for o in found]
    known = [maker for maker in makers if maker is not None]
    return None if len(known) < len(makers) else lambda graph, nodes: [made_of(graph, nodes) for made_of in known]


def _maker_of_miss(miss: NearestMiss, places: dict[Node, int]) -> MakerOf[NearestMiss] | None:
    made_of = maker_of_values((miss.node, miss.arguments), places)
    pattern, matched, template = miss.pattern, miss.matched, miss.template  # not the miss, which has nodes
    if made_of is None:
        return None

    def made(_: FlatGraph, nodes: Sequence[Node]) -> NearestMiss:
        node, arguments = made_of(nodes)
        return NearestMiss(pattern, matched, node, template, arguments)

    return made


def _opcode_behind(node: Node) -> str:
    for _ in range(_MAX_PEELED):
        if node.opcode not in PEEL_ROUNDING_AND_SHAPES:
            break
        node = node.operands[0]
    return node.opcode


def _needed(spelling: Spelling) -> frozenset[str]:
    """Opcodes that every match contains; a bitcast can stand for a broadcast."""

    def opcode(term: Term) -> tuple[str, ...]:
        if not isinstance(term, Operation):
            return ()
        return tuple(filter(None, (term.meaning.opcode, term.meaning.part_of)))

    return in_every_match(spelling.expression.root, opcode) - {"broadcast"}


def _opcodes(term: Term) -> frozenset[str]:
    """Opcodes of instructions that a term can match, of an operation before its operands are looked at."""
    if isinstance(term, AnyOf):
        return frozenset[str]().union(*map(_opcodes, term.alternatives))
    return frozenset((term.meaning.opcode,)) if isinstance(term, Operation) else ELEMENTWISE | PEEL_ROUNDING_AND_SHAPES


def _fits(root: Inner, opcode: str, operands: tuple[str, ...]) -> bool:
    """Whether an instruction with these operands can match the root, by opcodes alone."""
    if isinstance(root, AnyOf):
        return any(not isinstance(a, Capture | Number) and _fits(a, opcode, operands) for a in root.alternatives)
    if opcode not in _opcodes(root):
        return False
    if isinstance(root, ActivationCall):
        return True
    if root.meaning.part_of:
        return operands == (root.meaning.part_of,)
    pairs = [list(zip(root.arguments, operands, strict=False))]
    if root.meaning.opcode in COMMUTATIVE or root.meaning.opcode == "compare":
        pairs.append(list(zip(root.arguments, reversed(operands), strict=False)))
    return any(all(_may_be(term, behind) for term, behind in pairing) for pairing in pairs)


def _may_be(term: Term, opcode: str) -> bool:
    if isinstance(term, AnyOf):
        return any(_may_be(alternative, opcode) for alternative in term.alternatives)
    if isinstance(term, Capture | Number) or opcode in _opcodes(term) or opcode in PEEL_ROUNDING_AND_SHAPES:
        return True
    # Along dimensions of one element a broadcast is a mere change of shape.
    return isinstance(term, Operation) and term.meaning.opcode == "broadcast"
