"""The pass pipeline: the order of the passes for each way in, and their run on one module.

It matches, decides and plans the whole module before the first edit, and verifies the result. Pure: no JAX (except to
preprocess constants), no global state besides caches of plans.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hlo_dispatch.analysis.binding_time import PURE, StaticRule
from hlo_dispatch.analysis.overwritten_parameters import keep_inputs
from hlo_dispatch.autotune.measurement_requests import ModuleMeasurer
from hlo_dispatch.ir.inline import inline_calls
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.passes.accumulation_code_motion.code_motion import move_accumulations
from hlo_dispatch.passes.async_padding import insert_async_padding
from hlo_dispatch.passes.call_groups.buffer_assignment import share_buffers
from hlo_dispatch.passes.call_groups.grouping import group_calls
from hlo_dispatch.passes.call_groups.in_place_sum import sum_in_place
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.dispatch import lower
from hlo_dispatch.passes.huge_page_advice import advise_huge_pages
from hlo_dispatch.passes.input_product_code_motion import move_input_products
from hlo_dispatch.passes.loop_weights import find_loop_weights
from hlo_dispatch.passes.match_and_select import flatten, match_and_select
from hlo_dispatch.passes.narrow_stacks import narrow_stacks
from hlo_dispatch.passes.narrow_updates import narrow_updates
from hlo_dispatch.passes.partition.buffer_coalescing import coalesce_buffers
from hlo_dispatch.passes.partition.constant_weights import (
    extract_constants,
    has_constant_weights,
    preprocess_constants,
    restore_constants,
)
from hlo_dispatch.passes.partition.loop_invariant_code_motion import hoist_loop_invariants
from hlo_dispatch.passes.partition.outline_narrowed_weights import outline_narrowed_weights
from hlo_dispatch.passes.partition.prepacking import prepack
from hlo_dispatch.passes.partition.split_at_frontier import split_off_prologue
from hlo_dispatch.passes.pass_dump import pass_dump
from hlo_dispatch.passes.pass_runner import Pass, run_passes, verify_changed
from hlo_dispatch.passes.planner import Planner
from hlo_dispatch.passes.reassembled_arrays import update_parts_in_place
from hlo_dispatch.passes.region_reports import regions_of
from hlo_dispatch.passes.result_tuples import take_result_tuples_apart
from hlo_dispatch.passes.small_calls import undo_small_calls
from hlo_dispatch.passes.small_loops import gather_small_loops
from hlo_dispatch.passes.stacks_in_place import update_stacks_in_place
from hlo_dispatch.passes.stride_propagation.propagate import propagate_strides
from hlo_dispatch.pattern import Table
from hlo_dispatch.process.environment_switches import is_strict
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.report import Report
from hlo_dispatch.selection.measurements import KnownMeasurements
from hlo_dispatch.selection.strategies import Strategy

_INLINING = Pass("inline calls", lambda module, _: inline_calls(module), is_decisive=True)
_RESULT_TUPLES = Pass("result tuples", take_result_tuples_apart)
_SMALL_LOOPS = Pass("gathering of small loops", gather_small_loops)
_STACKS = Pass("in-place stacks", update_stacks_in_place)
_PARTS = Pass("in-place parts", update_parts_in_place)
_NARROW = Pass("narrow in-place updates", narrow_updates)
_NARROW_STACKS = Pass("narrow stacks", narrow_stacks)
_ACCUMULATIONS = Pass("accumulation code motion", move_accumulations)
_INPUT_PRODUCTS = Pass("input product code motion", move_input_products)
_FLATTEN = Pass("flatten", flatten)
_LOOP_WEIGHTS = Pass("loop weights", find_loop_weights)
_SELECT = Pass("match and select", match_and_select)
_LOWER = Pass("lower", lower, is_decisive=True)
_SMALL_CALLS = Pass("undoing of small calls", undo_small_calls)
_STRIDES = Pass("stride propagation", propagate_strides)
_PREPACKING = Pass("prepacking", prepack)
_HOISTING = Pass("loop-invariant code motion", hoist_loop_invariants)
_GROUPING = (
    Pass("call grouping", group_calls),
    Pass("in-place sums", sum_in_place),
    Pass("buffer assignment", share_buffers),
)
_PADDING = Pass("async padding", insert_async_padding)
_HUGE_PAGES = Pass("huge-page advice", advise_huge_pages)
_VERIFY = Pass("verify", verify_changed)

JIT = (
    _RESULT_TUPLES,
    _ACCUMULATIONS,
    _INPUT_PRODUCTS,
    _SMALL_LOOPS,
    _PARTS,
    _NARROW,
    _NARROW_STACKS,
    _STACKS,
    _FLATTEN,
    _LOOP_WEIGHTS,
    _SELECT,
    _LOWER,
    _SMALL_CALLS,
    _STRIDES,
    _PREPACKING,
    _HOISTING,
    *_GROUPING,
    _PADDING,
    _HUGE_PAGES,
    _VERIFY,
)
"""The passes on a module that JAX or another compiler shows."""
REGION = (_NARROW, _STACKS, _FLATTEN, _SELECT, _LOWER, _SMALL_CALLS, _STRIDES, *_GROUPING, _PADDING, _VERIFY)
"""On one region that is measured: its call is compared with stock's code, which has no huge pages either, in the loop
where it was found."""
FROZEN = (
    Pass("outlining of narrowed weights", outline_narrowed_weights),
    *(one for one in JIT if one not in (_LOOP_WEIGHTS, _PREPACKING, _HOISTING, *_GROUPING, _HUGE_PAGES)),
)
"""On a module with frozen parameters; it is split afterwards, whether or not anything is dispatched."""
SPLIT = (
    _PREPACKING,
    _HOISTING,
    Pass("partition", split_off_prologue),
    *_GROUPING,
    Pass("buffer coalescing", coalesce_buffers),
    _HUGE_PAGES,
    _VERIFY,
)
"""Split of a module with frozen parameters into prologue and steady-state program, which the module becomes."""
CONSTANTS = (Pass("constant extraction", extract_constants), *FROZEN)
"""On a module with large constants, which are frozen parameters until they are preprocessed."""
PREPROCESSING = (*SPLIT, Pass("constant preprocessing", preprocess_constants), _VERIFY)
"""On such a module once it is dispatched."""


@dataclass(frozen=True)
class Pipeline:
    """The pass pipeline with one planner; safe to use from several threads."""

    planner: Planner
    knowledge: KnownMeasurements = field(default_factory=KnownMeasurements)
    """Measurements of this machine, for the policies "measure" and "stored"."""
    make_measurer: Callable[[str], ModuleMeasurer] | None = field(default=None, compare=False)
    """Makes the measurer of a module, by its name; None: nothing is measured."""

    passes: Sequence[Pass] = JIT
    frozen: AbstractSet[int] = frozenset()
    """Numbers of the entry's frozen parameters; values that depend on these alone are static and cost nothing in a
    call."""
    static_rule: StaticRule = PURE
    """Which of these values are static."""
    inlines_calls: bool = False
    """Whether plain calls are inlined first: the module may be one that XLA has not optimized."""
    preprocesses_constants: bool = False
    """Whether large constants count as frozen weights, preprocessed while the module is rewritten; needs jax."""
    keeps_inputs: bool = False
    """Whether the compiler forgets what is donated to the module that `run` returns, which then overwrites none."""
    strategy: Strategy | None = None
    """The plan strategy of a whole-program trial; None: the policy and the measurements decide."""

    @classmethod
    def make(cls, table: Table, policy: str, machine: Machine | None = None) -> Pipeline:
        """Raises PolicyError for an unknown policy."""
        return cls(Planner.make(table, policy, machine))

    @property
    def table(self) -> Table:
        return self.planner.table

    @property
    def policy(self) -> str:
        return self.planner.policy

    @property
    def machine(self) -> Machine:
        return self.planner.machine

    def with_knowledge(
        self, knowledge: KnownMeasurements, make_measurer: Callable[[str], ModuleMeasurer] | None = None
    ) -> Pipeline:
        """The same pipeline with measurements, and with a measurer of the rest."""
        return replace(self, knowledge=knowledge, make_measurer=make_measurer)

    def run(self, serialized: bytes, *, details: bool = False) -> tuple[bytes | None, Report]:
        """Rewrite one serialized HloModuleProto.

        Args:
            details: look for the nearest miss of every epilogue (slow), and keep both modules in the report.

        Returns:
            the new module's bytes, or None where nothing was dispatched, and the report of every anchor.

        Raises:
            ModuleError: the bytes are not a module.
        """
        with _collector_paused():
            return self._run(serialized, details)  # module and graphs are freed before the collector is back

    def _run(self, serialized: bytes, details: bool) -> tuple[bytes | None, Report]:
        begin = time.perf_counter()
        module = Module.from_bytes(serialized, commits_edits=True)
        context = self._context(dumps=True)
        context.record("parse", begin, module)
        if self.inlines_calls and run_passes((_INLINING,), module, context) and details:
            serialized = module.to_bytes()
        rewritten, report = self._rewritten(module, context, details=details)
        result = None
        if rewritten is not None:
            serializing = time.perf_counter()
            if self.keeps_inputs:
                keep_inputs(rewritten)
            result = rewritten.to_bytes()
            context.record("serialize", serializing, rewritten)
        if details:
            report = replace(report, before=serialized, after=result)
        return result, replace(report, seconds=time.perf_counter() - begin, passes=tuple(context.runs))

    def rewrite(self, module: Module) -> tuple[Module | None, Report]:
        """Rewrite one module, in place.

        Returns:
            the module, or None where nothing was dispatched, and the report of every anchor.
        """
        with _collector_paused():
            return self._rewritten(module, self._context())

    def freeze(self, module: Module, widened: AbstractSet[int] = frozenset(), *, details: bool = False) -> Split:
        """Rewrite a module with frozen parameters and split it into prologue and steady-state program, in place.

        Args:
            widened: further frozen parameters, of narrower stored types: what would make them larger is neither
                prepacked nor hoisted.
            details: as for `run`.
        """
        with _collector_paused():
            before = module.to_bytes() if details else None
            dispatching = replace(self, passes=FROZEN, preprocesses_constants=False)
            context = dispatching._context(dumps=True)
            context.widened = widened
            _, report = dispatching._rewritten(module, context, details=details)
            split = _split(module, context)
            report = _with_call_groups(report, context)
            after = split.program.to_bytes() if details else None
            seconds, passes = sum(run.seconds for run in context.runs), tuple(context.runs)
            split.report = replace(report, seconds=seconds, passes=passes, before=before, after=after)
            return split

    def split(self, module: Module, frozen: AbstractSet[int], *, widened: AbstractSet[int] = frozenset()) -> Split:
        """Split a dispatched module, in place.

        Args:
            frozen: numbers of its frozen parameters.
            widened: those of narrower stored types, as for `freeze`.
        """
        context = self._context()
        context.frozen, context.widened = frozen - widened, widened
        return _split(module, context)

    def _rewritten(
        self, module: Module, context: PassContext, *, details: bool = False
    ) -> tuple[Module | None, Report]:
        begin, instructions, result = time.perf_counter(), module.instruction_count, None
        if context.dump is not None:
            context.dump.write(module, "input")
        if "while" in module.opcodes or self.planner.may_match(module.opcodes):
            is_constant = self.preprocesses_constants and has_constant_weights(module)
            if run_passes(CONSTANTS if is_constant else self.passes, module, context):
                result = _with_preprocessed_constants(module, context) if is_constant else module
        # The module no longer has the matched instructions, the plans do.
        regions = regions_of(module, context.plans, details=details)
        for graph, _ in context.graphs:
            graph.break_reference_cycles()
        report = Report(
            module.name,
            regions,
            time.perf_counter() - begin,
            tuple(context.runs),
            instructions,
            context.saved,
            failure=context.failure,
        )
        report = report.with_strided_calls(context.strided_calls)
        return result, _with_call_groups(report, context)

    def _context(self, *, dumps: bool = False) -> PassContext:
        return PassContext(
            planner=self.planner,
            frozen=self.frozen,
            static_rule=self.static_rule,
            knowledge=self.knowledge,
            make_measurer=self.make_measurer,
            strategy=self.strategy,
            rewritten=self._by_strategy,
            dump=pass_dump() if dumps else None,
        )

    def _by_strategy(self, module: Module, strategy: Strategy, context: PassContext) -> Module | None:
        """A copy of a module rewritten by a plan strategy, without measuring; None where nothing is dispatched."""
        passes = self.passes if context.weights is None else FROZEN
        made = replace(
            self,
            make_measurer=None,
            passes=passes,
            frozen=context.frozen,
            preprocesses_constants=False,
            strategy=strategy,
        )
        return made.rewrite(module.copy())[0]


def _with_call_groups(report: Report, context: PassContext) -> Report:
    groups = context.call_groups.values()
    names = {member.name: group.name for group in groups for member in group.members}
    return report.with_call_groups([group.report for group in groups], names)


def _split(module: Module, context: PassContext) -> Split:
    run_passes(SPLIT, module, context)
    assert context.split is not None, "one of the passes makes it"
    return context.split


def _with_preprocessed_constants(module: Module, context: PassContext) -> Module:
    """The module with preprocessed constants, or, where that fails, a copy with the original ones."""
    dispatched = module.copy()
    try:
        run_passes(PREPROCESSING, module, context)
        return module
    except Exception as error:
        if is_strict():
            raise
        context.failure = (
            f"constants could not be preprocessed; each call does it now ({type(error).__name__}: {error})"
        )
        context.call_groups = {}
        restore_constants(dispatched, context)
        return dispatched


@contextmanager
def _collector_paused() -> Generator[None]:
    """Pause Python's cycle collector, which traverses the growing graph repeatedly: half the time on large modules.

    With several threads, the one that found the collector enabled enables it again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
