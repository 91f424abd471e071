"""Measuring one region: stock XLA's own code for it against each form of the kernel, in speed and in result.

Both are compiled from the same excerpt, run on the same random inputs, and compared before they are timed: a
form that computes something else is refused, whatever its speed, and a reproducer is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import sleep
from typing import Any

from hlo_dispatch.policy.candidate import Candidate
from hlo_dispatch.policy.double import in_double
from hlo_dispatch.policy.excerpt import Excerpt, excerpt_module
from hlo_dispatch.policy.executable import Executable, to_device
from hlo_dispatch.policy.factors import comparable
from hlo_dispatch.policy.inputs import KINDS, random_inputs
from hlo_dispatch.policy.measured import STOCK, SURE, Measured
from hlo_dispatch.policy.race import Time, race
from hlo_dispatch.policy.reproducer import Reproducer
from hlo_dispatch.policy.surroundings import surrounded
from hlo_dispatch.policy.validation import Difference, is_finite, judge

LEAST_GAIN = 0.02
"""Of stock's time: a kernel that gains less is not worth its call."""
LEAST_SECONDS = 10e-6
"""So much may a call cost more in its program than here, where fewer threads come and go."""
LONELY_RACES = 3
"""More that a kernel has to win where no other is in the program, which nobody tries as a whole."""
MOST_UNCLEAR = 3
"""So often a race is run where noise hides who wins."""
PAUSE = 0.2
"""Seconds between two of them."""
SETTLE = 0.03
"""Seconds until a turn of library calls counts: OpenBLAS's threads keep a processor busy for 20 ms after their work."""
MOST_COPIES = 16
SEED = 20240229
_logger = logging.getLogger("hlo_dispatch")


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    seconds: float
    """Timing of one region, at most."""
    most_forms: int
    """Forms besides stock, the likeliest first."""
    is_thorough: bool = False


QUICK = Effort(seconds=0.12, most_forms=1)
THOROUGH = Effort(seconds=1.0, most_forms=6, is_thorough=True)

Build = Callable[[str], bytes | None]
"""Form → the excerpt's module with its region dispatched so, or None where that cannot be done."""


class Unmeasurable(Exception):
    """The region cannot be run on its own; the message says why. The heuristic decides then."""


class Unclear(Exception):
    """The machine was too busy to tell who is faster; the heuristic decides, and another time it is asked again."""


@dataclass(frozen=True)
class Task:
    """One region to measure."""

    excerpt: Excerpt
    forms: Sequence[tuple[str, Candidate]]
    build: Build
    tolerance: float
    footprint: int
    """Bytes that the program reads between two runs of the region; what was read before is in no cache then."""
    threads: int
    is_entangled: bool
    """Whether neighbours share its fusions, so that it shows less than it gains there."""
    is_lonely: bool
    """Whether the program has no other region."""
    formula: str
    shape: str
    kernel: str


def measure(task: Task, effort: Effort, keep: Callable[[str, Reproducer], str], *, timed: bool = True) -> Measured:
    """Measure one region.

    Args:
        keep: stores a reproducer of a wrong result under a form's name and returns where.
        timed: False only compares the results; stock is chosen then unless every form is right.

    Raises:
        Unmeasurable: the region cannot be run on its own.
        Unclear: noise hides who is faster.
    """
    modules = _modules(task)
    outcome = _Comparison(task)
    refused: dict[str, str] = {}
    differences: dict[str, float] = {}
    for form, module in modules.items():
        found = outcome.judge(module)
        differences[form] = found.value
        if found:
            where = keep(form, outcome.reproducer(module, found))
            refused[form] = (
                f"{task.formula} on {task.shape} by {task.kernel} ({form}) differs from stock XLA by "
                f"{found.value:.2g} where {found.tolerance:.2g} is allowed; reproducer: {where}"
            )
    good = [form for form in modules if form not in refused]
    about = {
        "refused": refused, "differences": differences, "thorough": effort.is_thorough,
        "formula": task.formula, "shape": task.shape, "kernel": task.kernel,
    }  # fmt: skip
    if not good or not timed:
        return Measured(STOCK, {}, **about)
    stock, *times = outcome.race([modules[form] for form in good], effort.seconds)
    found = dict(zip(good, times, strict=True))
    verdict = _verdict(found, stock.seconds, about, is_entangled=task.is_entangled)
    while verdict.chosen != STOCK and not task.is_entangled:
        lost = _lost_again(outcome, task, modules[verdict.chosen], verdict, effort)
        if lost is None:
            break
        # The next one may be as fast and steadier.
        del found[verdict.chosen]
        chosen = _fastest(found, stock.seconds)
        seconds = {**verdict.seconds, STOCK: lost[0].seconds, verdict.chosen: lost[1].seconds}
        gain, noise = (found[chosen].gain, found[chosen].error) if chosen != STOCK else (0.0, verdict.noise)
        verdict = replace(verdict, chosen=chosen, seconds=seconds, gain=gain, noise=noise)
    return verdict


def _lost_again(
    outcome: _Comparison, task: Task, module: bytes, verdict: Measured, effort: Effort
) -> tuple[Time, Time] | None:
    """Stock's time and the chosen form's in a further race that it did not win; None if it won them all.

    Memory that has to be fetched from the system anew, or threads that are slow to wake, last for a whole race: a
    kernel that gains little has to win twice.
    """
    is_sure = verdict.gain >= SURE * verdict.stock
    for turn in range(LONELY_RACES if task.is_lonely else 0 if is_sure else 1):
        sleep(PAUSE)
        for _ in range(MOST_UNCLEAR):
            stock, own = outcome.race([module], effort.seconds, keeping=turn % 2 == 0)
            if not own.may_win(stock.seconds, LEAST_GAIN * stock.seconds + LEAST_SECONDS):
                break
        if not _wins(own, stock.seconds):
            return stock, own
    return None


def _modules(task: Task) -> dict[str, bytes]:
    built = {form: task.build(form) for form, _ in task.forms}
    modules = {form: module for form, module in built.items() if module is not None}
    if not modules:
        raise Unmeasurable("cut out of its module, the region is matched in another way")
    return modules


def _verdict(found: dict[str, Time], stock: float, about: dict[str, Any], *, is_entangled: bool) -> Measured:
    """The form that gains most, if it gains clearly."""
    chosen = _fastest(found, stock)
    unclear = any(time.may_win(stock, LEAST_SECONDS) for time in found.values())
    if chosen == STOCK and unclear and not is_entangled and not about["refused"]:
        raise Unclear
    shown = found[chosen] if chosen != STOCK else max(found.values(), key=lambda time: time.gain)
    seconds = {STOCK: stock} | {form: time.seconds for form, time in found.items()}
    gain = shown.gain if chosen != STOCK else 0.0
    return Measured(chosen, seconds, gain, shown.error, is_entangled=is_entangled, **about)


def _fastest(found: dict[str, Time], stock: float) -> str:
    chosen = STOCK
    for form, time in found.items():
        # The earlier form is the likelier one: a later one has to be better by more than noise.
        best = found[chosen].gain + 2 * time.error + 0.01 * stock if chosen != STOCK else 0.0
        if _wins(time, stock) and time.gain > best:
            chosen = form
    return chosen


def _wins(time: Time, stock: float) -> bool:
    return time.wins(LEAST_GAIN * stock + LEAST_SECONDS)


class _Comparison:
    """Stock and the candidates of one excerpt, on the same inputs."""

    def __init__(self, task: Task) -> None:
        self._task, self._excerpt = task, task.excerpt
        self._parsed = excerpt_module(task.excerpt)
        self._executables: dict[bytes, Executable] = {}
        try:
            self._run_stock()
        except Exception as error:
            raise Unmeasurable(f"XLA does not run the region on its own: {str(error)[:200]}") from error
        self._exact: Sequence[Any] | None = None
        self._asked_exactly = False

    def _run_stock(self) -> None:
        stock = self._executable(self._excerpt.module)
        for self._kind in KINDS:
            self._inputs = random_inputs(self._parsed, self._excerpt.inputs, SEED, self._kind)
            self._arguments = to_device(self._inputs)
            self._stock = stock(self._arguments)
            if is_finite(self._stock):
                break
        else:
            if self._excerpt.routine:
                # What fails ends early, and says nothing of how long the routine takes.
                raise ValueError("its results are not finite on any inputs that were tried")

    def judge(self, module: bytes) -> Difference:
        """How far the candidate's results are from the right ones."""
        got = self._executable(module)(self._arguments)
        stock = comparable(self._excerpt, self._stock)
        return judge(stock, comparable(self._excerpt, got), self._task.tolerance, self._in_double)

    def _in_double(self) -> Sequence[Any] | None:
        if not self._asked_exactly:
            self._asked_exactly, self._exact = True, self._run_in_double()
        return self._exact

    def _run_in_double(self) -> Sequence[Any] | None:
        wide = in_double(self._excerpt.module)
        if wide is None:
            return None
        try:
            executable = Executable(wide)
        except Exception as error:
            _logger.debug("no float64 form of %s: %s", self._task.formula, error)
            return None
        return executable(to_device([_widened(value) for value in self._inputs]))

    def race(self, modules: Sequence[bytes], seconds: float, *, keeping: bool = False) -> list[Time]:
        """Stock first, then the forms.

        Args:
            keeping: whether each one's results are kept until it has the next, so that they lie elsewhere in memory.
        """
        arguments = self._rotation()
        every = (self._excerpt.module, *modules)
        runners = [_Rotating(self._executable(m), arguments, keeping=keeping) for m in every]
        settle = SETTLE if self._excerpt.routine else 0.0
        return race(runners, seconds=seconds, least=LEAST_SECONDS, settle=settle)

    def _rotation(self) -> list[list[Any]]:
        """So many copies of what comes from outside of the program that the caches forget it as in the program.

        What other instructions produce is in the caches there, too.
        """
        excerpt = self._excerpt
        outside = [place for place, is_produced in enumerate(excerpt.produced) if not is_produced]
        size = sum(excerpt.inputs[place].bytes for place in outside)
        copies = min(MOST_COPIES, self._task.footprint // max(size, 1))
        copied = to_device([self._inputs[place] for place in outside] * (copies - 1))
        rotation = [self._arguments]
        while copied:
            fresh = dict(zip(outside, copied, strict=False))
            del copied[: len(outside)]
            rotation.append([fresh.get(place, value) for place, value in enumerate(self._arguments)])
        return rotation

    def _executable(self, module: bytes) -> Executable:
        """The module in its surroundings, which change no value."""
        if module not in self._executables:
            self._executables[module] = Executable(surrounded(module, self._excerpt, self._task.threads))
        return self._executables[module]

    def reproducer(self, module: bytes, found: Difference) -> Reproducer:
        return Reproducer(self._excerpt.module, module, SEED, self._kind, found)


class _Rotating:
    """Calls an executable on each set of arguments in turn."""

    def __init__(self, executable: Executable, arguments: Sequence[Sequence[Any]], *, keeping: bool) -> None:
        self._executable, self._arguments, self._next = executable, arguments, 0
        self._keeping = keeping
        self._kept: Sequence[Any] = ()

    def __call__(self) -> None:
        self._next = (self._next + 1) % len(self._arguments)
        results = self._executable(self._arguments[self._next])
        if self._keeping:
            self._kept = results


def _widened(value: Any) -> Any:
    if value.dtype.kind == "c":
        return value.astype("complex128")
    return value if value.dtype.kind in "biu" else value.astype("float64")
