"""Measurement requests: looks up the regions of a module's plan by their digests and collects the unmeasured ones."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.loop_nest import executions
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.region import RegionExtractor
from hlo_dispatch.autotune.extract.trip_count_reduction import ASSUMED_TRIPS
from hlo_dispatch.autotune.run.running_time import RunningTimes
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.match.elementwise.finder import SLOW_OPCODES
from hlo_dispatch.match.equal_matches import once_for_equal_matches
from hlo_dispatch.match.match import Match
from hlo_dispatch.pattern.op_kinds import MAY_BE_ANCHORS
from hlo_dispatch.pattern.table import KernelBinding, Numerics, Table
from hlo_dispatch.selection.candidate import DefaultVariant, KernelSupportQuery
from hlo_dispatch.selection.measurements import DECIDED_BY_PROGRAM, STOCK, KnownMeasurements, Measurement
from hlo_dispatch.selection.strategies import BEFORE_TRIAL, CLOSE_LOSS, WITHOUT_TRIAL, Strategy
from hlo_dispatch.vendor.users_kernels import library_of

CALL_SECONDS = 1.5e-6
"""Estimated seconds of stock's code below which a region is not measured, since no kernel call can win it.

A constant, because the estimate is one: both are in units of `run/running_time.py`. Nor has a call one cost: among 64
calls in a row it was 0.4 µs (two cores of an AMD EPYC), between two of XLA's parallel loops 35 µs."""
_REGIONS = MAY_BE_ANCHORS | {"custom-call", "fft", "sort"} | SLOW_OPCODES
FOOTPRINTS = (1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
"""Classes of footprints in bytes: from a core's own cache to more than the last-level cache."""


@dataclass
class MeasurementRequest:
    """Request to measure one region that was never measured, or only while the machine was busy."""

    digest: str
    extractor: RegionExtractor
    match: Match
    default: DefaultVariant
    numerics: Numerics
    footprint: int
    """Estimated bytes that the program reads between two runs of the region."""
    shares_fusion: bool = False
    """Whether the region shares fusions with its neighbours."""
    is_only_region: bool = False
    """Whether the program has no other region."""
    count: int = 1
    """Number of the module's regions with this digest."""
    seconds: float = 0.0
    """Estimated time of stock's code for all of these in one run of the program: the most that a kernel could gain."""


Stock = Callable[[], tuple[Module, bool]]
"""Returns the module as XLA made it, and whether that is a leading part of the program, lazily."""
Variants = Callable[[], Iterable[tuple[str, Module]]]
"""Returns the plan strategies of a program, and the module of each, lazily."""


class ModuleMeasurer(Protocol):
    """Tuner of one module: measures its requests within a budget."""

    def resume(self) -> None:
        """Continue with a module for which an earlier compile ran out of time."""
        ...

    @property
    def is_thorough(self) -> bool:
        """Whether it measures everything without a budget, also what earlier compiles gave up."""
        ...

    def finish(self, program: str) -> None:
        """Mark a program as measured for later compiles, unless its measurement is provisional."""
        ...

    def with_frozen(self, frozen: frozenset[int], widened: frozenset[int]) -> ModuleMeasurer:
        """The same tuner for a module with frozen parameters, and further ones of narrower stored types."""
        ...

    def reserve(self, module: Module) -> None:
        """Reserve time of the budget for the whole-program trial."""
        ...

    def __call__(self, requests: Sequence[MeasurementRequest], support_query: KernelSupportQuery) -> int:
        """Measure regions; returns the number of new measurements."""
        ...

    def measure_program(
        self, program: str, stock: Stock, variants: Variants, *, is_final: bool, is_hurried: bool = False
    ) -> None:
        """Run a whole-program trial.

        Args:
            program: the program's digest in the store.
            stock: the module as XLA made it, or its leading part, where there is time for a trial.
            variants: builds the modules to compare with stock, one by one as time allows.
            is_final: whether all regions should have been measured; nothing happens where they were not.
            is_hurried: whether measuring regions took part of the time; a later compile tries the remaining variants.
        """
        ...


class MeasurementRequests:
    """The measurement requests of one module's plan."""

    def __init__(
        self,
        module: Module,
        table: Table,
        knowledge: KnownMeasurements,
        frozen: AbstractSet[int] = frozenset(),
        stock: Module | None = None,
        widened: AbstractSet[int] = frozenset(),
        *,
        has_loop_weights: bool = False,
    ) -> None:
        """
        Args:
            frozen: numbers of the frozen parameters.
            widened: further ones, of narrower stored types, whose preprocessing no run of the program does either.
            stock: the module as XLA made it, where code was moved before matching.
            has_loop_weights: whether weights are prepacked in front of loops.
        """
        self.strategy, self._frozen = BEFORE_TRIAL, frozen
        self._stock, self._widened, self._has_loop_weights = stock, widened, has_loop_weights
        self._digests, self._table, self._knowledge = Digests(module), table, knowledge
        self._module, self._footprint = module, footprint_of(module)
        self._has_several = _has_several(module)
        self._executions = executions(module)
        self._times = RunningTimes(module, digest_of=self._digests.of_computation)
        self._stock_seconds: dict[str, float] = {}
        """Digest of a region → estimated time of stock's code in one execution."""
        self._requests: dict[str, MeasurementRequest] = {}
        self._extractors: dict[FlatGraph, RegionExtractor] = {}
        self._settings: dict[tuple[object, ...], str] = {}
        """What a measurement depends on besides its region, by what that follows from."""
        self.possible_calls = 0.0
        """Number of kernel calls in one run of the program that are not known to be slower than stock's code."""

    def lookup_in(self, graph: FlatGraph) -> Callable[[Match, DefaultVariant], Measurement | None]:
        """The lookup of the matches in `graph`: returns a measurement, or None after adding a request."""
        executions = self.executions(graph)
        extractor = self._extractors.get(graph) or RegionExtractor(graph, self._digests, executions, self._times)
        self._extractors[graph] = extractor

        def recall(match: Match, default: DefaultVariant) -> Measurement | None:
            # A region faster than a call is measured only where stock may be wrong.
            is_small = extractor.is_stock_within(CALL_SECONDS, match) and not extractor.reads_a_reduction(match)
            if is_small and not self.strategy.dispatches_all:
                return None
            numerics = _numerics_of(match)
            digest = extractor.digest(
                default.candidate.match.in_module, self._key_settings(match, default, numerics, graph.static)
            )
            known = self._knowledge.get(digest)
            if known is None or known.chosen != STOCK or known.loss < CLOSE_LOSS:
                self.possible_calls += executions
            verdict = self.strategy.verdict(known, match.multiply_adds)
            if verdict is not DECIDED_BY_PROGRAM and (known is None or known.is_worth_remeasuring):
                if digest not in self._stock_seconds:
                    self._stock_seconds[digest] = extractor.stock_seconds(match)
                times = ASSUMED_TRIPS if math.isinf(executions) else executions
                seconds = times * self._stock_seconds[digest]
                if (existing := self._requests.get(digest)) is not None:
                    existing.count += 1
                    existing.seconds += seconds
                else:
                    request = MeasurementRequest(digest, extractor, match, default, numerics, self._footprint)
                    self._add(request, seconds)
            return verdict

        return recall

    def executions(self, graph: FlatGraph) -> float:
        """Executions of this computation in one run of the program; infinite where that is unknown."""
        return self._executions.get(graph.computation.id, 1.0)

    def _add(self, request: MeasurementRequest, seconds: float) -> None:
        request.shares_fusion = request.extractor.shares_fusion(request.default.candidate.match.in_module)
        request.is_only_region = not self._has_several
        request.seconds = seconds
        self._requests[request.digest] = request

    @property
    def untried(self) -> Strategy:
        """The plan strategy without a whole-program trial's result."""
        known = self._knowledge.get(self.program)
        is_given_up = known is not None and known.is_given_up
        return BEFORE_TRIAL if self._has_several and not is_given_up else WITHOUT_TRIAL

    @property
    def is_moved(self) -> bool:
        """Whether code was moved before matching."""
        return self._stock is not None

    @property
    def has_frozen(self) -> bool:
        """Whether some parameters are frozen."""
        return bool(self._frozen or self._widened)

    @cached_property
    def program(self) -> str:
        """The program's digest in the store."""
        digests = self._digests if self._stock is None else Digests(self._stock)
        entry = digests.of_computation(self._module.proto.entry_computation_id)
        frozen = f" frozen {sorted(self._frozen)}" if self._frozen else ""
        # Trials of earlier releases say nothing: they left small calls alone, and code where it was.
        moved = " moved" if self.is_moved else ""
        small = " small calls" if any(small for _, small in self._module.control_flow_computations()) else ""
        # Nor that they gave loops of unknown length up.
        unknown = " loops of unknown length" if math.inf in self._executions.values() else ""
        # Nor that they narrowed weights in each run.
        widened = f" widened {sorted(self._widened)}" if self._widened else ""
        # Nor that they prepacked weights in each iteration of a loop.
        weights = " loop weights" if self._has_loop_weights else ""
        settings = f"{self._table.fingerprint} {entry.hex()}{frozen}{small}{moved}{unknown}{widened}{weights}"
        return hashlib.sha256(f"program {settings}".encode()).hexdigest()

    def begin(self, strategy: Strategy) -> None:
        """Start a new plan by this strategy, without requests."""
        self.strategy, self._requests = strategy, {}
        self.possible_calls = 0.0

    def pending(self) -> list[MeasurementRequest]:
        """The requests of the latest plan, those first on which most time depends."""
        return sorted(self._requests.values(), key=lambda request: -request.seconds)

    def _key_settings(
        self, match: Match, default: DefaultVariant, numerics: Numerics, static: AbstractSet[Node]
    ) -> str:
        """What else the measurement depends on: the kernel call and the tolerance."""
        attributes = default.candidate.attributes
        static_operands = tuple([view.node in static for view in match.operands.values()]) if static else ()
        key = (match.kernels, match.kernel, attributes.text, static_operands, numerics.tolerance)
        if key not in self._settings:
            binding = self._table.kernels[match.kernel]
            frozen = f"frozen {[*static_operands]} " if any(static_operands) else ""
            alternatives = "".join(f"{kernel} " for kernel in match.kernels if kernel != match.kernel)
            call = f"{alternatives}{binding.target} {attributes!r}"
            settings = f"{frozen}{call} {numerics.tolerance} {self._footprint} {_library_build(binding)}"
            self._settings[key] = settings
        return self._settings[key]


@once_for_equal_matches
def _numerics_of(match: Match) -> Numerics:
    return match.numerics()


def _has_several(module: Module) -> bool:
    """Whether the program may have more than one region."""
    return len(list(itertools.islice((i for i in module.instructions if i.opcode in _REGIONS), 2))) > 1


def footprint_of(module: Module) -> int:
    """Bytes that the program reads from its inputs, rounded down to a class of footprints."""
    # Large constants are weights.
    outside = (i for i in module.entry.instructions[:] if i.opcode in ("parameter", "constant"))
    total = sum(shape_of(instruction.shape).bytes for instruction in outside)
    return max((size for size in FOOTPRINTS if size <= total), default=0)


def _library_build(binding: KernelBinding) -> str:
    """Path and version of a user's own library."""
    if not binding.is_user_defined:
        return ""
    library = library_of(binding)
    return f"{library.path} {library.version}"
