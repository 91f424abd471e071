"""What becomes of a module's regions, where measuring has a say: known, measured now, and tried as a whole.

Nothing known: the plan by the heuristic is tried against stock XLA first, as a whole program. That one
measurement says most, so that the first compile is no worse than the better of the two. Regions are measured with
the time that is left. Once all of them are known, the plans that follow from them are tried in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hlo_dispatch.autotune.measurement_requests import ModuleTuner, Wanted
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.selection.candidate import Ask
from hlo_dispatch.selection.measurements import (
    ALL_IN_KERNELS,
    APART,
    EVERYTHING,
    GUESSED,
    REGARDLESS,
    STOCK,
    TOGETHER,
    Knowledge,
    Measured,
)

# The first plan guesses, the second knows; what it changes may show regions that nobody had seen.
_MOST_PLANNINGS = 3
# What is measured again since the machine was busy has the time of a first compile.
_MOST_RESUMED = 2
# One call alone is measured as it is.
_FEWEST_FOR_A_TRIAL = 2

Plans = list[ComputationPlan]


@dataclass(frozen=True)
class Deliberation:
    """One module's; `settle()` is called once."""

    serialized: bytes
    wanted: Wanted
    knowledge: Knowledge
    measure: ModuleTuner | None
    """None: nothing is measured."""
    ask: Ask
    make_plans: Callable[[], Plans]
    """Plans the module in the mode that `wanted` is in."""
    rewritten: Callable[[str], bytes | None]
    """The module in a mode, nothing measured; None: nothing is dispatched."""

    def settle(self) -> Plans:
        """The plans to follow."""
        program = self.wanted.program()
        verdict = self._verdict()
        plans = self._planned(_mode(verdict))
        known = self.knowledge.get(program)
        if self.measure is None or (verdict is not None and verdict.thorough):
            return _followed(plans, verdict)
        if known is not None and known.is_hopeless and not self.measure.is_thorough:
            return plans  # two compiles had their time; what they did not reach the cost model decides
        if known is not None:
            if known.disturbed < _MOST_RESUMED:
                self.measure.resume()
                self.measure.reserve(self.serialized)
        plans = self._measured(self.measure, program, plans)
        if known is not None:
            self.measure.close(program)
        verdict = self._verdict()
        if self.wanted.mode != _mode(verdict):
            plans = self._planned(_mode(verdict))
        return _followed(plans, verdict)

    def saved(self, plans: Plans) -> float | None:
        """Seconds that a run of the program saves by these plans, as far as it was measured."""
        verdict = self._verdict()
        if verdict is not None:
            return None if verdict.trips else verdict.gain
        measured = [d.saved for plan in plans for _, d in plan.decisions.values() if d.saved is not None]
        return sum(measured) if measured else None

    def _verdict(self) -> Measured | None:
        """What is known of the program as a whole."""
        known = self.knowledge.get(self.wanted.program())
        if known is None or known.vain or (known.provisional and known.chosen == STOCK):
            return None
        return known

    def _planned(self, mode: str) -> Plans:
        self.wanted.mode = mode
        return self.make_plans()

    def _measured(self, measure: ModuleTuner, program: str, plans: Plans) -> Plans:
        """Measure the program and its regions as far as time goes; returns the newest plans."""
        unknown, most = self.wanted.take(), self._calls(plans)
        had_regions = bool(unknown)
        if unknown and most >= _FEWEST_FOR_A_TRIAL and self._verdict() is None:
            # Kernels gain most by weights that are packed before the first call; there may be time for one way only.
            quick = (EVERYTHING, GUESSED) if self.wanted.has_frozen else (GUESSED, EVERYTHING)
            measure.whole(program, self.serialized, lambda: self._variants(*quick), is_final=False)
        for _ in range(_MOST_PLANNINGS):
            if not unknown or not measure(unknown, self.ask):
                break
            # A region that is dispatched, or no longer is, changes what its neighbours can have.
            plans = self._planned(TOGETHER if self._verdict() is not None else "")
            unknown, most = self.wanted.take(), max(most, self._calls(plans))
        if most >= _FEWEST_FOR_A_TRIAL or self._verdict() is not None:
            modes = self._best_first()
            measure.whole(
                program, self.serialized, lambda: self._variants(*modes), is_final=True, is_hurried=had_regions
            )
        return plans

    def _calls(self, plans: Sequence[ComputationPlan]) -> float:
        """How many kernel calls one run of the program makes, or could make for all that is known of its regions.

        Regions that gain little each are left to the cost model until the program shows what they gain together: that
        none of them is dispatched is no reason not to try the program.
        """
        made = sum(len(plan.dispatched) * self.wanted.executions(plan.graph) for plan in plans if plan.dispatched)
        return max(made, self.wanted.possible_calls)

    def _best_first(self) -> list[str]:
        """The modes to try once all is known: there may be time for the first of them only."""
        verdict, modes = self._verdict(), [TOGETHER, EVERYTHING, REGARDLESS, APART, GUESSED]
        tried = set(verdict.seconds) - {STOCK} if verdict is not None else set[str]()
        if verdict is None or verdict.chosen not in modes:
            return modes
        if verdict.chosen in ALL_IN_KERNELS or GUESSED not in tried:
            # It won the trial before; who was not in that comes next.
            modes.sort(key=lambda mode: (mode != verdict.chosen, mode in tried and GUESSED not in tried))
        return modes

    def _variants(self, *modes: str) -> Iterator[tuple[str, bytes]]:
        """The different programs that follow from what is known now; equal ones under the first mode's name."""
        found: set[bytes] = set()
        for mode in modes:
            module = self.rewritten(mode)
            if module is not None and module not in found:
                found.add(module)
                yield mode, module


def _mode(verdict: Measured | None) -> str:
    """How to plan a program of which this is known."""
    if verdict is None:
        return ""
    return TOGETHER if verdict.chosen == STOCK else verdict.chosen


def _followed(plans: Plans, verdict: Measured | None) -> Plans:
    if verdict is not None and verdict.chosen == STOCK:
        for plan in plans:
            plan.give_up(f"the whole program was {verdict.sentence()}", "slower", is_slower=True)
    return plans
