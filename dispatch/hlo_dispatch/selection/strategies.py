"""Plan strategies: values that say of each region of a program whether its measurement or the cost model decides it.

A whole-program trial compares the plans of several strategies with stock XLA; the store keeps the winner's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hlo_dispatch.match.match import Match
from hlo_dispatch.selection.cost_model import SMALLEST_DOT, is_slow_in_small_call
from hlo_dispatch.selection.measurements import DECIDED_BY_PROGRAM, STOCK, Measurement

CLEAR_LOSS = 1.0
"""Largest loss of a single region, as a fraction of stock's time, with which ALL_SUPPORTED still dispatches it."""
CLOSE_LOSS = 0.1
"""Maximum loss, as a fraction of stock's time, with which a region that shares a fusion is left to the cost model while
its program is unmeasured."""
CONVINCING_GAIN = 0.5
"""Smallest gain of a single region, as a fraction of stock's time, that needs no confirmation."""


@dataclass(frozen=True)
class Strategy:
    """A plan strategy: which regions get a kernel, by their measurements."""

    name: str
    """The name by which the store keeps it; empty where it is no candidate of a trial."""
    trusts: Callable[[Measurement], bool]
    """Whether a region's times decide it; otherwise the cost model does."""
    tolerated_loss: float | None = None
    """Largest loss of a single region, as a fraction of stock's time, with which it gets a kernel nevertheless, as do
    regions without a measurement, because calls in one call group cost less than each shows alone; None: no such
    region does."""

    undoes_small_calls: bool = False
    """Whether every region in a small call may get a kernel; otherwise only those that XLA's code there is slow at."""

    @property
    def dispatches_all(self) -> bool:
        """Whether every supported region gets a kernel unless it lost, and glue ops between two calls as well.

        A glue op gains nothing alone: only a whole-program trial shows the gain.
        """
        return self.tolerated_loss is not None

    @property
    def heeds_clear_losses(self) -> bool:
        """Whether a region that lost clearly by its measurement stays with XLA."""
        return self is not COST_MODEL and (self.tolerated_loss or 0.0) < math.inf

    def undoes_small_call(self, match: Match) -> bool:
        """Whether this match may get a kernel, for which the small call around it is undone."""
        return self.undoes_small_calls or is_slow_in_small_call(match)

    def verdict(self, known: Measurement | None, multiply_adds: float) -> Measurement | None:
        """What decides a region: its measurement, the program (DECIDED_BY_PROGRAM), or None: the cost model."""
        if self.tolerated_loss is not None and _may_win_with_others(known, multiply_adds, self.tolerated_loss):
            return DECIDED_BY_PROGRAM
        if known is None or known.failed_attempts:
            return None
        is_about_results = bool(known.refused) or (known.chosen != STOCK and known.stock_error > 0)
        return known if is_about_results or known.is_worth_remeasuring or self.trusts(known) else None


def _may_win_with_others(known: Measurement | None, multiply_adds: float, tolerated_loss: float) -> bool:
    """Whether stock won alone, but not clearly and not by validation, or no measurement says so.

    A small region loses alone by the overhead of a call, which may be many times stock's time.
    """
    if known is None or known.provisional or (known.failed_attempts and not known.timed_out_after):
        return True
    has_lost = known.chosen == STOCK and not known.refused and not known.timed_out_after
    return has_lost and (multiply_adds < SMALLEST_DOT or known.loss <= tolerated_loss)


def _lost_by_sharing(known: Measurement, least: float = math.inf) -> bool:
    """Whether it lost by less than `least` and shares a fusion, so that alone it shows less than its gain."""
    return known.shares_fusion and known.chosen == STOCK and known.loss < least


def _is_convincing(known: Measurement) -> bool:
    """Whether it needs no whole-program trial.

    Alone, a kernel does not show the cost of alternating between its threads and XLA's: a program of 36 products, each
    10 to 40 % faster alone, was 5 % slower than stock.
    """
    is_clear = known.loss >= 0 if known.chosen == STOCK else known.gain >= CONVINCING_GAIN * known.stock
    return is_clear and not _lost_by_sharing(known, CLOSE_LOSS)


COST_MODEL = Strategy("guessed", trusts=lambda known: False)
"""The cost model decides every region."""
MEASURED_JOINTLY = Strategy("together", trusts=lambda known: not _lost_by_sharing(known))
"""The measurements decide; regions that share a fusion and lost alone are left to the cost model."""
MEASURED_ALONE = Strategy("apart", trusts=lambda known: True)
"""Only regions that win alone get a kernel."""
ALL_SUPPORTED = Strategy("everything", trusts=lambda known: True, tolerated_loss=CLEAR_LOSS)
"""Every region gets a kernel, except those with a clear loss."""
ALL_SUPPORTED_UNCONDITIONALLY = Strategy(
    "everything, however slow alone", trusts=lambda known: True, tolerated_loss=math.inf, undoes_small_calls=True
)
"""Those with a clear loss as well, because a single measurement made on a busy machine would otherwise split the call
group of its region; and those in small calls."""
BEFORE_TRIAL = Strategy("", trusts=_is_convincing)
"""Without a whole-program trial yet: convincing measurements decide."""
WITHOUT_TRIAL = Strategy("", trusts=lambda known: not _lost_by_sharing(known, CLOSE_LOSS))
"""Where no trial will come: all measurements decide, except narrow losses of regions that share a fusion."""

STRATEGIES = (MEASURED_JOINTLY, ALL_SUPPORTED, ALL_SUPPORTED_UNCONDITIONALLY, MEASURED_ALONE, COST_MODEL)
"""The candidates of a whole-program trial once all regions are measured, the most promising one first."""
_BY_NAME = {strategy.name: strategy for strategy in STRATEGIES}


def to_try(trial: Measurement | None) -> list[Strategy]:
    """STRATEGIES, or an earlier trial's winner first, then those that were not in that trial."""
    chosen = _BY_NAME.get(trial.chosen) if trial is not None else None
    if trial is None or chosen is None:
        return list(STRATEGIES)
    had_final = COST_MODEL.name not in trial.seconds
    if not chosen.dispatches_all and not had_final:
        return list(STRATEGIES)
    return sorted(STRATEGIES, key=lambda s: (s is not chosen, had_final and s.name in trial.seconds))


def to_try_first(*, has_frozen: bool) -> list[Strategy]:
    """The candidates of the trial before regions are measured; the budget may suffice for one only."""
    # Kernels gain most by prepacked weights.
    return [ALL_SUPPORTED, COST_MODEL] if has_frozen else [COST_MODEL, ALL_SUPPORTED]


def chosen_by(trial: Measurement) -> Strategy:
    """The strategy that won a whole-program trial; where stock won, the one whose regions the report names."""
    return _BY_NAME.get(trial.chosen, MEASURED_JOINTLY if trial.chosen == STOCK else MEASURED_ALONE)


def verdicts(known: Measurement) -> str:
    """Which strategies let this measurement decide its region, among those for which it matters."""
    strategies = (*STRATEGIES, BEFORE_TRIAL, WITHOUT_TRIAL)
    return str([s.verdict(known, math.inf) is known for s in strategies if not s.dispatches_all])
