"""Whole-program trial: times dispatched variants of a whole program against stock.

Measurements of single regions are not enough. Dispatching a region that shares fusions also takes work out of its
neighbours' fusions. A kernel between two of XLA's parallel loops costs more than between two other kernels. And it is
the program that must not become slower. So a program that can be run alone has two trials: one before its regions
are measured (of the cost model's plan: the most valuable single measurement), and one when all of them are known.

A large program of equal layers is represented by the first of them (`extract/leading_part.py`).

A loop of unknown length runs a few times in a trial, and a long one fewer times than in the program. What wins with
them must win by iterations as well, where it has kernel calls inside of loops and outside of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from hlo_dispatch.analysis.loop_nest import executions
from hlo_dispatch.analysis.overwritten_parameters import keep_inputs
from hlo_dispatch.autotune.compare.acceptance_rules import missing_gain
from hlo_dispatch.autotune.compare.comparison import Unmeasurable, compiled
from hlo_dispatch.autotune.compare.finalists import fastest, finalists_of
from hlo_dispatch.autotune.compare.timing import PATIENCE, Time, fewest_calls, interleaved
from hlo_dispatch.autotune.compare.validation import is_finite
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.trip_count_reduction import ASSUMED_TRIPS, fitting_trips, with_trips
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime, Unclear
from hlo_dispatch.autotune.run.executable import Executable, to_device
from hlo_dispatch.autotune.run.inputs import random_inputs
from hlo_dispatch.autotune.run.running_time import calls_libraries, running_time
from hlo_dispatch.autotune.run.time_estimate import compile_time, input_time
from hlo_dispatch.autotune.run.watchdog import run_with_watchdog
from hlo_dispatch.ir.entry_parameters import unread_parameters
from hlo_dispatch.ir.kernel_call import is_kernel_call
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.selection.measurements import STOCK, Measurement, Pairs

ALL_KERNELS = "all of them"
"""Name of the kernel in a program's measurement."""
PROGRAM = "the whole program"
"""Name of a whole-program trial in messages."""
SECONDS = 3.0
"""Seconds of the final trials: of the variants against stock, and of the finalists."""
QUICK_SECONDS = 0.5
"""Seconds of the trial before regions are measured."""
CALLS_IN_A_TRIAL = 60
"""Runs of a program, by its running-time estimate, that must fit into the remaining time: two programs run ten times
each, and an estimate may be off by a small factor. Otherwise the trip counts of loops are reduced."""
LARGEST_PROGRAM = 2 << 30
"""Maximum bytes of inputs and results, which are allocated for a moment."""
LEAST_GAIN = 0.01
"""Minimum gain as a fraction of stock's time, besides the noise."""
MOST_REGRET = 0.02
"""What the choice of a final trial may cost at most, as a fraction of stock's time."""
BY_ITERATIONS = "each iteration of its loops takes longer"


def expected_seconds(module: Module, programs: int, assumed_trips: int | None = ASSUMED_TRIPS) -> float | None:
    """Upper bound of seconds for compiling this many programs and running stock once; None where it has no bound.

    After that run the time is measured, and the estimate is not needed. `assumed_trips` is as for `running_time`.
    """
    signature = module.entry.program_shape
    results = signature.result.tuple_shapes or (signature.result,)
    shapes = [shape_of(shape) for shape in (*signature.parameters, *results)]
    size = sum(shape.bytes for shape in shapes)
    if any(not s.is_array or s.is_dynamic for s in shapes) or size > LARGEST_PROGRAM:
        return None
    run = running_time(module, assumed_trips)
    if run is None:
        return None
    size -= sum(shapes[number].bytes for number in unread_parameters(module))
    return programs * compile_time.expected(module.instruction_count) + input_time.expected(size) + run


def compare(
    stock: Module,
    variants: Mapping[str, Module] | Iterable[tuple[str, Module]],
    *,
    remaining: float = float("inf"),
    reserved: float = 0.0,
    is_final: bool = True,
    is_hurried: bool = False,
    is_part: bool = False,
    frozen: AbstractSet[int] = frozenset(),
    split: Splitter | None = None,
    before: Mapping[str, Pairs] | None = None,
) -> Measurement:
    """Run a whole-program trial.

    Args:
        stock: the optimized module as XLA made it.
        variants: name → dispatched module, the likeliest winner first. The later ones are built and compared only if
            the time suffices.
        remaining: maximum seconds.
        reserved: seconds of these for which nothing is planned.
        is_final: whether all regions have measurements.
        is_hurried: whether a later compile has more time: the result is thorough only if every variant was compared.
        is_part: whether these are programs' leading parts.
        frozen: numbers of the frozen parameters.
        split: partitions modules with frozen parameters.
        before: undisturbed samples of an earlier trial that decided nothing.

    Returns:
        The measurement with the chosen variant, or "stock".

    Raises:
        Unmeasurable: the program cannot be run on random inputs.
        OutOfTime: it takes too long.
        Unclear: trip counts had to be limited, and then no variant won.
        TimedOut: it does not end.
    """
    deadline = Deadline(remaining, reserved)
    trips = fitting_trips(stock, remaining / CALLS_IN_A_TRIAL)
    description: dict[str, Any] = {
        "formula": f"all of {stock.name}", "kernel": ALL_KERNELS, "trip_limit": trips or 0, "is_part": is_part,
    }  # fmt: skip
    variants_left = iter(cast("Mapping[str, Module]", variants).items() if isinstance(variants, Mapping) else variants)
    first = next(variants_left, None)
    if first is None:
        return Measurement(STOCK, {STOCK: 0.0}, thorough=is_final, **description)
    expected = expected_seconds(stock if trips is None else with_trips(stock, trips), 2, None)
    if expected is None:
        raise Unmeasurable("the program's work depends on its inputs")
    deadline.demand(expected)
    candidates = _begun(stock, deadline, frozen, split, trips)
    trips = candidates.trips
    description["trip_limit"] = trips or 0
    candidates.add(*first)
    variant: tuple[str, Module] | None = first
    while variant is not None and candidates.has_time_for_one_more():
        variant = next(variants_left, None)
        if variant is not None:
            candidates.add(*variant)
    description["thorough"] = is_final and (variant is None or not is_hurried)
    longest, regret = (SECONDS, MOST_REGRET) if is_final else (QUICK_SECONDS, None)

    def seconds() -> float:
        return min(longest, max(deadline.remaining, 0.0) / PATIENCE)

    earlier = [(before or {}).get(key, ()) for key in candidates.keys]
    times = interleaved(candidates.programs, seconds=seconds(), regret=regret, deadline=deadline, before=earlier)
    found = dict(zip(candidates.names, times[1:], strict=True))
    reference = times[0].seconds
    least = LEAST_GAIN * reference
    known = {STOCK: reference} | {name: time.seconds for name, time in found.items()}
    samples = {key: time.pairs for key, time in zip(candidates.keys, times[1:], strict=True) if time.pairs}
    if any(time.is_doubtful(reference) for time in found.values()):
        description |= {"provisional": True, "thorough": False, "samples": samples}
    won = {name: time for name, time in found.items() if time.gain > time.error + least}
    if not won and trips is not None and any(time.gain > -time.error for time in found.values()):
        # With few iterations, code outside of the loops hides gains inside of them.
        raise Unclear(samples)
    why = ""
    while won:
        # Of equally fast finalists the first one is chosen, which has the most evidence.
        finalists = {name: candidates.program(name) for name in finalists_of(won)}
        chosen, among = fastest(finalists, seconds=seconds(), regret=regret, deadline=deadline)
        known |= among
        loses = candidates.loses_by_iterations(chosen, found[chosen], least, seconds=seconds())
        description["thorough"] = description["thorough"] and loses is not None
        if not loses:
            return Measurement(chosen, known, found[chosen].gain, found[chosen].error, **description)
        del won[chosen]
        why = BY_ITERATIONS
    best = max(found.values(), key=lambda time: time.gain)
    shown = min(found.values(), key=lambda time: time.seconds)
    why = why or missing_gain(shown, reference, least)
    return Measurement(STOCK, known, 0.0, best.error, why=why, **description)


def _begun(
    stock: Module, deadline: Deadline, frozen: AbstractSet[int], split: Splitter | None, trips: int | None
) -> TrialPrograms:
    """Compile stock and run it once, with fewer iterations where that takes longer than estimated."""
    programs = TrialPrograms(stock, deadline, frozen, split, trips)
    if programs.seconds_of_one_more() < deadline.plannable:
        return programs
    # Half of the time, for the shortest trial of two programs: a run's time varies.
    fewer = fitting_trips(stock, deadline.plannable / 2 / (2 * fewest_calls(0.0)) / programs.slowdown)
    return programs if fewer is None else TrialPrograms(stock, deadline, frozen, split, fewer)


class TrialPrograms:
    """The programs of one trial: stock, compiled and run once, and as many variants as the time allows."""

    def __init__(
        self,
        stock: Module,
        deadline: Deadline,
        frozen: AbstractSet[int],
        split: Splitter | None,
        trips: int | None,
    ) -> None:
        """`trips`: maximum iterations of each loop; None: unlimited."""
        self._stock, self._frozen, self._split, self.trips = stock, frozen, split, trips
        self._deadline, self._may_fail = deadline, calls_libraries(stock)
        stock = self._limited(stock)
        shapes: Sequence[Shape] = [shape_of(shape) for shape in stock.entry.program_shape.parameters]
        self._arguments = to_device(random_inputs(stock, shapes, 1))
        begin = time.perf_counter()
        self.programs = [self._compiled(stock)]
        self._compile = time.perf_counter() - begin
        begin = time.perf_counter()
        estimate = running_time(stock) or 0.0
        results = run_with_watchdog(self.programs[0], deadline, estimate)
        self._run = time.perf_counter() - begin
        self.slowdown = self._run / estimate if estimate else 1.0
        """How many times as long as estimated stock's first run took."""
        if self._may_fail and not is_finite(results):
            # A routine that fails returns early: its time says nothing.
            raise Unmeasurable("its library calls fail on random inputs")
        self.names: list[str] = []
        self.keys: list[str] = []
        """Of each variant's module with its trip limit, for its samples."""
        self._variants: dict[str, Module] = {}

    def add(self, name: str, variant: Module) -> None:
        """Compile it.

        Raises:
            OutOfTime: the remaining time would not suffice to run it.
        """
        self._deadline.demand(self.seconds_of_one_more())
        begin = time.perf_counter()
        self.programs.append(self._compiled(variant))
        self.names.append(name)
        self.keys.append(f"{Digests(variant).of_computation(variant.entry.id).hex()[:16]} {self.trips or 0}")
        self._variants[name] = variant
        self._compile = max(self._compile, time.perf_counter() - begin)

    def seconds_of_one_more(self) -> float:
        """Expected seconds of compiling one more variant and of the shortest trial with it."""
        return self._compile + self._runs(len(self.programs) + 1)

    def has_time_for_one_more(self) -> bool:
        """Whether the time suffices to build, compile and run one more variant."""
        # Building it takes less than compiling it.
        return self._deadline.remaining > self._compile + self.seconds_of_one_more()

    def program(self, name: str) -> _Program:
        """The compiled variant of this name."""
        return self.programs[1 + self.names.index(name)]

    def loses_by_iterations(self, name: str, time: Time, least: float, *, seconds: float) -> bool | None:
        """Whether a winner's gain shrinks with limited trip counts: it gains outside of the loops and loses inside.

        Args:
            time: the winner's in this trial.
            least: seconds of a gain that matters.
            seconds: duration of the trial with half as many iterations.

        Returns:
            None where the remaining time does not suffice.
        """
        variant = self._variants[name]
        if self.trips is None or not _has_calls_in_and_outside_of_loops(variant):
            return False
        try:
            self._deadline.demand(2 * self._compile + self._runs(2))
            fewer = TrialPrograms(self._stock, self._deadline, self._frozen, self._split, max(self.trips // 2, 1))
            fewer.add(name, variant)
            _, shorter = interleaved(fewer.programs, seconds=seconds, deadline=self._deadline)
        except OutOfTime:
            return None
        return time.gain - shorter.gain < -(time.error + shorter.error + least)

    def _runs(self, programs: int) -> float:
        return programs * fewest_calls(self._run) * self._run

    def _limited(self, module: Module) -> Module:
        return module if self.trips is None else with_trips(module, self.trips)

    def _compiled(self, module: Module) -> _Program:
        plain = _plain(self._limited(module))
        return _Program(compiled(plain, self._deadline, self._frozen, self._split), self._arguments)


def _has_calls_in_and_outside_of_loops(module: Module) -> bool:
    calling = {
        times > 1
        for identifier, times in executions(module).items()
        if any(is_kernel_call(instruction) for instruction in module.computations[identifier].instructions[:])
    }
    return len(calling) > 1


def _plain(module: Module) -> Module:
    """A copy of the module that donates no input: they are used again."""
    module = module.copy()
    keep_inputs(module)
    module.proto.ClearField("schedule")
    return module


class _Program:
    def __init__(self, executable: Executable, arguments: Sequence[Any]) -> None:
        self._executable, self._arguments = executable, arguments

    def __call__(self) -> list[Any]:
        return self._executable(self._arguments)
