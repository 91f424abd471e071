"""Profiler of the pipeline: time, tries and hits of each entry of the table.

The plain pipeline has no counters. The profiled one has counting subclasses of the finders and the matcher, makes the
same decisions, and is a little slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.strided_view import Dimension
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.elementwise_region import ElementwiseRegion
from hlo_dispatch.match.epilogue.finder import EpilogueFinder, Step
from hlo_dispatch.match.epilogue.operand import OperandFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.match_memo import MatchMemo
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.structural.attempt import Attempt
from hlo_dispatch.match.structural.finder import StructuralFinder
from hlo_dispatch.passes.planner import Planner
from hlo_dispatch.pattern import Recogniser, Table
from hlo_dispatch.pattern.table import AnchorKind
from hlo_dispatch.pattern.timed_recogniser import TimedRecogniser
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.candidate import Candidate, KernelSupportQuery


@dataclass
class EntryCost:
    """Tries, hits and seconds of one entry of the table."""

    kind: str
    """One of pattern, anchor, activation, binary, kernel; a "function" is an unknown function, no entry."""
    name: str
    place: str
    """Where the entry is written: `file:line`."""
    tries: int = 0
    hits: int = 0
    seconds: float = 0.0
    """Of all tries. An anchor's time includes that of its epilogue."""
    hit_seconds: float = 0.0
    """The tries that hit."""


@dataclass
class Profile:
    """Tallies by (kind, name)."""

    places: dict[tuple[str, str], str]
    tallies: dict[tuple[str, str], EntryCost] = field(default_factory=dict[tuple[str, str], EntryCost])

    @classmethod
    def of(cls, table: Table) -> Profile:
        """An empty profile with the source locations of `table`'s entries."""
        kinds: dict[str, Any] = {
            "pattern": table.patterns,
            "anchor": table.anchors.values(),
            "activation": table.activations,
            "binary": table.binaries.values(),
            "kernel": table.kernels.values(),
        }
        written = ((kind, entry) for kind, entries in kinds.items() for entry in entries)
        return cls({(kind, entry.name): f"{entry.location.file}:{entry.location.line}" for kind, entry in written})

    def count(self, kind: str, name: str, seconds: float, *, hit: bool) -> None:
        """Note one try."""
        tally = self.tallies.get((kind, name))
        if tally is None:
            tally = self.tallies[kind, name] = EntryCost(kind, name, self.places.get((kind, name), ""))
        tally.tries += 1
        tally.seconds += seconds
        if hit:
            tally.hits += 1
            tally.hit_seconds += seconds

    def to_list(self) -> list[dict[str, Any]]:
        """Plain dicts, ready for JSON."""
        return [asdict(tally) for tally in self.tallies.values()]

    def untried(self) -> list[str]:
        """Entries without a try in the module."""
        return [f"{kind} {name}" for kind, name in self.places if (kind, name) not in self.tallies]


def profiling(table: Table, policy: str, machine: Machine | None = None) -> tuple[Pipeline, Profile]:
    """A counting pipeline and its profile; new for each profile, since it must not cache matches.

    Raises:
        PolicyError: there is no such policy.
    """
    profile, plain = Profile.of(table), Planner.make(table, policy, machine)
    planner = replace(
        plain,
        finder=_CountingEpilogueFinder(table, profile),
        patterns=StructuralFinder(table, partial(_counted, profile)),
        support_query=_CountingSupportQuery(plain.support_query, profile),
        matcher=partial(_CountingMatcher, profile),
    )
    return Pipeline(planner), profile


@dataclass(frozen=True)
class _CountingSupportQuery:
    support_query: KernelSupportQuery
    profile: Profile

    def __call__(self, match: Match, **attributes: str) -> Candidate | Refusal:
        start = time.perf_counter()
        answer = self.support_query(match, **attributes)
        seconds = time.perf_counter() - start
        self.profile.count("kernel", match.kernel, seconds, hit=not isinstance(answer, Refusal))
        return answer


class _CountingMatcher(Matcher):
    def __init__(
        self, profile: Profile, graph: FlatGraph, table: Table, finder: EpilogueFinder, machine: Machine
    ) -> None:
        super().__init__(graph, table, finder, machine)
        self._profile = profile

    def match(
        self,
        node: Node,
        is_owned: Callable[[Node], bool],
        is_materialized: Callable[[Node], bool],
        results: AbstractSet[Node] = frozenset(),
    ) -> Match | Refusal:
        start = time.perf_counter()
        match = super().match(node, is_owned, is_materialized, results)
        seconds = time.perf_counter() - start
        name = self.entry_name(node) if isinstance(match, Refusal) else match.name
        self._profile.count("anchor", name, seconds, hit=not isinstance(match, Refusal))
        return match


class _CountingEpilogueFinder(EpilogueFinder):
    def __init__(self, table: Table, profile: Profile) -> None:
        super().__init__(TimedRecogniser(table.activations), table.binaries)
        self._profile = profile

    def memo(self, *settings: Hashable) -> MatchMemo:
        return MatchMemo(most_recorded=0)  # each match is counted where it is found

    def _activation(self, region: ElementwiseRegion, entry: AnchorKind, destination: Any) -> Step | None:
        start = time.perf_counter()
        step = super()._activation(region, entry, destination)
        seconds = time.perf_counter() - start
        known = self._recall(region, entry)
        kind, name = ("activation", known.activation) if known is not None else ("function", "unknown")
        self._profile.count(kind, name, seconds, hit=step is not None)
        return step

    def _recognise(self, region: ElementwiseRegion, recogniser: Recogniser) -> tuple[int, Any] | None:
        found = super()._recognise(region, recogniser)
        assert isinstance(recogniser, TimedRecogniser), "its constructor made one"
        for name, seconds in recogniser.spent.items():
            # The activation that matched is counted where it was looked up.
            if found is None or found[1].name != name:
                self._profile.count("activation", name, seconds, hit=False)
        return found

    def _binary(
        self,
        anchor: Anchor,
        current: Node,
        destination: tuple[Dimension, ...],
        operand_of: OperandFinder,
    ) -> Step | str:
        start = time.perf_counter()
        step = super()._binary(anchor, current, destination, operand_of)
        seconds = time.perf_counter() - start
        binary = self._binaries.get(current.users[0].opcode)
        if binary is not None:
            self._profile.count("binary", binary.name, seconds, hit=isinstance(step, Step))
        return step


def _counted(profile: Profile, attempt: Attempt) -> Match | None:
    start = time.perf_counter()
    match = attempt.match()
    profile.count("pattern", attempt.pattern, time.perf_counter() - start, hit=match is not None)
    return match
