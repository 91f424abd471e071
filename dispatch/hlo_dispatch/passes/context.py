"""Context of a run of the passes: what they need, and what they leave behind for later passes and for the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlo_dispatch.analysis.binding_time import PURE, StaticRule
from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.autotune.measurement_requests import ModuleMeasurer
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.passes.call_groups.call_group import CallGroup
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.passes.planner import Planner
from hlo_dispatch.pattern import Table
from hlo_dispatch.report import PassRun, StridedCall
from hlo_dispatch.selection.measurements import KnownMeasurements
from hlo_dispatch.selection.strategies import Strategy

if TYPE_CHECKING:
    from hlo_dispatch.passes.partition.constant_weights import ConstantWeights
    from hlo_dispatch.passes.pass_dump import PassDump


@dataclass
class PassContext:
    """The context of one run on one module."""

    planner: Planner
    frozen: AbstractSet[int] = frozenset()
    """Numbers of the entry's frozen parameters; values that depend on these alone are static."""
    static_rule: StaticRule = PURE
    """Which of these values are."""
    widened: AbstractSet[int] = frozenset()
    """Further frozen parameters, of narrower stored types: what would make them larger is neither prepacked nor
    hoisted."""
    knowledge: KnownMeasurements = field(default_factory=KnownMeasurements)
    """Measurements of this machine."""
    make_measurer: Callable[[str], ModuleMeasurer] | None = None
    """Makes the measurer of a module, by its name; None: nothing is measured."""
    strategy: Strategy | None = None
    """The plan strategy of a whole-program trial; None: the policy and the measurements decide."""
    rewritten: Callable[[Module, Strategy, PassContext], Module | None] | None = None
    """Rewrites a copy of a module by a plan strategy, without measuring; gives None where nothing is dispatched."""
    dump: PassDump | None = None

    stock: Module | None = None
    """The module as XLA made it, where a pass edited it before matching: what a whole-program trial compares with."""
    is_moved: bool = False
    """Whether code was moved, an edit that stands without any kernel call."""
    needs_trial: bool = False
    """Whether it does so only by a whole-program trial."""
    loop_weights: dict[int, AbstractSet[int]] = field(default_factory=dict[int, AbstractSet[int]])
    """Id of a long loop's body → the elements of its state that count as static inside."""
    graphs: list[tuple[FlatGraph, bool]] = field(default_factory=list[tuple[FlatGraph, bool]])
    """The flat graph of each computation, and whether that one runs inside a small call."""
    plans: list[ComputationPlan] = field(default_factory=list[ComputationPlan])
    saved: float | None = None
    """Seconds that a run of the program saves by these plans, as far as they were measured."""
    strided_calls: dict[str, StridedCall] = field(default_factory=dict[str, StridedCall])
    """Name of a call → what stride propagation made of it."""
    call_groups: dict[str, CallGroup] = field(default_factory=dict[str, CallGroup])
    """By the names of their custom-calls."""
    prepacked: set[str] = field(default_factory=set[str])
    """Names of the instructions whose values are prepacked weights."""
    weights: ConstantWeights | None = None
    """The large constants that the module has as frozen parameters for a while."""
    split: Split | None = None
    """Prologue and steady-state program, which the module has become."""
    failure: str = ""
    """A failure of a pass although the module was dispatched, in one sentence."""
    changed: set[int] = field(default_factory=set[int])
    """Ids of the computations that the passes have changed."""
    runs: list[PassRun] = field(default_factory=list[PassRun])
    """The passes that ran, in order."""

    @property
    def table(self) -> Table:
        return self.planner.table

    @property
    def threads(self) -> int:
        """Number of XLA's threads."""
        return self.planner.machine.threads

    def keep_stock(self, module: Module) -> None:
        """Keep the module as XLA made it, ahead of the first edit before matching."""
        self.stock = self.stock or module.copy()

    def record(self, name: str, begin: float, module: Module, changed: Collection[int] = ()) -> None:
        """Note a run that began at that time."""
        seconds = time.perf_counter() - begin
        names = tuple(module.computations[number].name for number in changed if number in module.computations)
        count = module.instruction_count if changed or not self.runs else self.runs[-1].instructions
        self.runs.append(PassRun(name, seconds, names, count))
