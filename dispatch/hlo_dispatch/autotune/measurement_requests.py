"""What a module's plan asks of measuring: each region looked up by its digest, unknown ones noted."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.analysis.loop_nest import executions
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.region import RegionExtractor
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import MAY_BE_ANCHORS
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.match.protocol import CallableMatch
from hlo_dispatch.pattern.table import KernelBinding, Numerics, Table
from hlo_dispatch.selection.candidate import Default, KernelSupportQuery
from hlo_dispatch.selection.cost_model import SMALLEST_DOT
from hlo_dispatch.selection.measurements import (
    ALL_SUPPORTED_STRATEGIES,
    ALL_SUPPORTED_UNCONDITIONALLY,
    CLEAR_LOSS,
    CONVINCING_GAIN,
    COST_MODEL,
    DECIDED_BY_PROGRAM,
    MEASURED_JOINTLY,
    STOCK,
    KnownMeasurements,
    Measurement,
)
from hlo_dispatch.vendor.users_kernels import library_of

CLOSE_LOSS = 0.1
"""An entangled region that loses no more than this alone, in parts of stock's time, is left to the heuristic while
nothing is known of its program."""
CALL_SECONDS = 1.5e-6
"""What a kernel call costs at least, on any processor: a region that stock is expected to compute in less is not
measured, since no kernel can win it."""
_REGIONS = MAY_BE_ANCHORS | {"custom-call", "fft"}
FOOTPRINTS = (1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
"""Bytes: from what a core's own cache holds to more than the last cache does."""


@dataclass
class MeasurementRequest:
    """A region that was asked for and never measured, or only while the machine was busy."""

    digest: str
    extractor: RegionExtractor
    match: CallableMatch
    default: Default
    numerics: Numerics
    footprint: int
    """Bytes that the program reads between two runs of the region, roughly."""
    shares_fusion: bool = False
    """Whether neighbours share its fusions."""
    is_only_region: bool = False
    """Whether the program has no other region."""
    count: int = 1
    """How many regions of the module are like this."""

    @property
    def weight(self) -> float:
        """How much depends on it: arithmetic, or bytes where no arithmetic is known, of all its occurrences."""
        return self.count * self.match.work.weight


Variants = Callable[[], Iterable[tuple[str, bytes]]]
"""Gives the modes of a program, and the program in each, one by one."""


class ModuleMeasurer(Protocol):
    """Measures what one module needs, as far as its budget goes."""

    def resume(self) -> None:
        """An earlier compile began with this module, and ran out of time."""
        ...

    @property
    def is_thorough(self) -> bool:
        """Whether it takes as long as it takes, whatever earlier compiles have given up."""
        ...

    def finish(self, program: str) -> None:
        """No later compile goes on measuring this program, unless what is known of it is provisional."""
        ...

    def with_frozen(self, frozen: frozenset[int]) -> ModuleMeasurer:
        """The same for a module some of whose parameters are known before it is called."""
        ...

    def reserve(self, serialized: bytes) -> None:
        """Leave time for the trial of a whole program when its regions are measured."""
        ...

    def __call__(self, unknown: Sequence[MeasurementRequest], ask: KernelSupportQuery) -> int:
        """Measure regions; returns how many are known now that were not."""
        ...

    def measure_program(
        self, program: str, stock: bytes, variants: Variants, *, is_final: bool, is_hurried: bool = False
    ) -> None:
        """Measure a whole program.

        Args:
            program: what stands for it in the store.
            variants: makes the modules to compare with stock, one after the other as there is time for them.
            is_final: whether all its regions should be known by now; nothing happens where they are not.
            is_hurried: whether regions took of the time before; a later compile tries what there is no time for.
        """
        ...


class MeasurementRequests:
    """The questions that planning one module raises."""

    def __init__(
        self,
        module: Module,
        table: Table,
        knowledge: KnownMeasurements,
        mode: str = "",
        frozen: AbstractSet[int] = frozenset(),
    ) -> None:
        """Nothing is asked yet.

        Args:
            mode: what becomes of what was measured: nothing ("guessed"), or everything except for entangled regions
                that lost alone: "together", "apart", or, by how much they lost, empty; "everything": whatever did not
                lose by far is dispatched; "everything, however slow alone": what did, too.
            frozen: numbers of the parameters that are known before the program is called.
        """
        self.mode, self._frozen = mode, frozen
        self._digests, self._table, self._knowledge = Digests(module), table, knowledge
        self._module, self._footprint = module, footprint_of(module)
        self._has_several = _has_several(module)
        self._executions = executions(module)
        self._unknown: dict[str, MeasurementRequest] = {}
        self.possible_calls = 0.0
        """How many kernel calls one run of the program could make that are not known to be slower than stock's code."""

    def lookup_in(self, graph: FlatGraph) -> Callable[[CallableMatch, Default], Measurement | None]:
        """What is known of a match in `graph`; what is not known is noted."""
        executions = self.executions(graph)
        extractor = RegionExtractor(graph, self._digests, executions)

        def recall(match: CallableMatch, default: Default) -> Measurement | None:
            # What takes stock less than a call is measured where stock may be wrong.
            is_small = extractor.is_stock_within(CALL_SECONDS, match) and not extractor.reads_a_reduction(match)
            if is_small and self.mode not in ALL_SUPPORTED_STRATEGIES:
                return None
            numerics = match.numerics()
            digest = extractor.digest(default.candidate.match.in_module, self._key_settings(match, default, numerics))
            known = self._knowledge.get(digest)
            if is_small:
                return known if known is not None and known.refused else DECIDED_BY_PROGRAM
            is_given_up = known is not None and known.is_given_up
            if known is not None and known.failed_attempts and not known.timed_out_after:
                known = None
            if known is None or known.chosen != STOCK or known.loss < CLOSE_LOSS:
                self.possible_calls += executions
            if self.mode in ALL_SUPPORTED_STRATEGIES and (known is None or self._may_win_with_others(known, match)):
                return DECIDED_BY_PROGRAM
            if is_given_up:
                return None
            if known is None or known.is_worth_remeasuring:
                self._request(MeasurementRequest(digest, extractor, match, default, numerics, self._footprint))
            elif not known.refused and self._is_left_to_the_heuristic(known):
                return None
            return known

        return recall

    def executions(self, graph: FlatGraph) -> float:
        """How often one run of the program runs this computation; infinite where that is not known."""
        return self._executions.get(graph.computation.id, 1.0)

    def _request(self, unknown: MeasurementRequest) -> None:
        noted = self._unknown.get(unknown.digest)
        if noted is not None:
            noted.count += 1
            return
        unknown.shares_fusion = unknown.extractor.shares_fusion(unknown.default.candidate.match.in_module)
        unknown.is_only_region = not self._has_several
        self._unknown[unknown.digest] = unknown

    def _may_win_with_others(self, known: Measurement, match: CallableMatch) -> bool:
        """Whether stock won alone, but not by far (if that matters), and not because a result was wrong; or who knows.

        What is little work loses alone by what a call costs, however often stock's time that is.
        """
        has_lost = known.chosen == STOCK and not known.refused and not known.timed_out_after
        is_near = match.work.multiply_adds < SMALLEST_DOT or known.loss <= CLEAR_LOSS
        return known.provisional or (has_lost and (is_near or self.mode == ALL_SUPPORTED_UNCONDITIONALLY))

    def _is_left_to_the_heuristic(self, known: Measurement) -> bool:
        if known.chosen != STOCK and known.stock_error:
            return False
        if self.mode == COST_MODEL:
            return True
        if not self.mode and self._has_several and not self._is_untestable:
            # Alone a kernel shows nothing of what its threads, or stock's, cost those of the neighbours: a program
            # of 36 products, each 10 to 40 % faster alone, was 5 % slower than stock.
            unsure = known.loss < 0 if known.chosen == STOCK else known.gain < CONVINCING_GAIN * known.stock
            if unsure:
                return True
        has_lost = known.shares_fusion and known.chosen == STOCK
        return has_lost and (self.mode == MEASURED_JOINTLY or (not self.mode and known.loss < CLOSE_LOSS))

    @property
    def _is_untestable(self) -> bool:
        """Whether the program cannot be tried as a whole, so that what its regions say alone is all there is."""
        known = self._knowledge.get(self.program())
        return known is not None and known.is_given_up

    @property
    def has_frozen(self) -> bool:
        """Whether some of its parameters are known before it is called."""
        return bool(self._frozen)

    def program(self) -> str:
        """What stands for the whole program in the store."""
        return self._program

    @cached_property
    def _program(self) -> str:
        entry = self._digests.of_computation(self._module.proto.entry_computation_id)
        frozen = f" frozen {sorted(self._frozen)}" if self._frozen else ""
        return hashlib.sha256(f"program {self._table.fingerprint} {entry.hex()}{frozen}".encode()).hexdigest()

    def reset(self) -> None:
        """A new plan is made."""
        self._unknown = {}
        self.possible_calls = 0.0

    def pending(self) -> list[MeasurementRequest]:
        """The unknown regions of the newest plan, most important first."""
        return sorted(self._unknown.values(), key=lambda region: -region.weight)

    def _key_settings(self, match: CallableMatch, default: Default, numerics: Numerics) -> str:
        """What else the measurement depends on: the kernel call, and how exact it has to be."""
        binding = self._table.kernels[match.kernel]
        early = [view.node.is_static for view in match.operands]
        frozen = f"frozen {early} " if any(early) else ""
        rivals = "".join(f"{kernel} " for kernel in match.kernels if kernel != match.kernel)
        call = f"{rivals}{binding.target} {default.candidate.attributes}"
        return f"{frozen}{call} {numerics.tolerance} {self._footprint} {_library_build(binding)}"


def _has_several(module: Module) -> bool:
    """Whether the program may have more than one region."""
    opcodes = (i.opcode for c in module.proto.computations[:] for i in c.instructions[:])
    return len(list(itertools.islice((opcode for opcode in opcodes if opcode in _REGIONS), 2))) > 1


def footprint_of(module: Module) -> int:
    """How much the program reads from outside, in bytes, rounded down to one of a few sizes."""
    # Constants that are as large as weights are weights.
    outside = (i for i in module.entry.instructions if i.opcode in ("parameter", "constant"))
    total = sum(shape_of(instruction.shape).bytes for instruction in outside)
    return max((size for size in FOOTPRINTS if size <= total), default=0)


def _library_build(binding: KernelBinding) -> str:
    """Which build of a user's own library it is."""
    if not binding.is_users:
        return ""
    library = library_of(binding)
    return f"{library.path} {library.version}"
