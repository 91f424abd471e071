"""Comparison harness: compiles stock's code and the candidates' for one extracted module, validates and times them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from hlo_dispatch.autotune.compare.float64_reference import in_float64
from hlo_dispatch.autotune.compare.loop_harness_timing import Harness, interleaved_iterations
from hlo_dispatch.autotune.compare.reproducer import Reproducer
from hlo_dispatch.autotune.compare.timing import Time, interleaved
from hlo_dispatch.autotune.compare.validation import Difference, is_finite, judge
from hlo_dispatch.autotune.extract.context_ops import with_context_ops
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime
from hlo_dispatch.autotune.run.executable import Executable, to_device
from hlo_dispatch.autotune.run.factorization_results import comparable
from hlo_dispatch.autotune.run.inputs import KINDS, random_inputs
from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.autotune.run.split_executable import SplitExecutable
from hlo_dispatch.autotune.run.time_estimate import compile_time, input_time
from hlo_dispatch.autotune.run.watchdog import TimedOut, run_with_watchdog
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.selection.measurements import Pairs

LEAST_SECONDS = 10e-6
"""Extra seconds that a call may cost in its program, where more threads start and stop than here."""
SETTLE = 0.03
"""Seconds of calls before a turn of library calls counts: OpenBLAS's threads spin for 20 ms after their work."""
MOST_COPIES = 16
SEED = 20240229
_logger = logging.getLogger("hlo_dispatch")


class Unmeasurable(Exception):
    """The region cannot be run alone; the message says why. The cost model decides then."""


class Comparison:
    """Stock and the candidates of one extracted module, on the same inputs."""

    def __init__(
        self,
        extracted: ExtractedModule,
        *,
        tolerance: float,
        footprint: int,
        threads: int,
        variants: int,
        deadline: Deadline,
        split: Splitter | None = None,
    ) -> None:
        """Compile and run stock.

        Args:
            split: partitions the module into prologue and steady-state program; needed where inputs are frozen.
            variants: number of candidates.

        Raises:
            Unmeasurable: the region cannot be run alone.
            OutOfTime: the time does not suffice for it and the candidates.
            TimedOut: it does not end.
        """
        self._extracted, self._tolerance, self._footprint, self._threads = extracted, tolerance, footprint, threads
        self._deadline, self._split = deadline, split
        self._executables: dict[Module, Executable] = {}
        self._run = running_time(extracted.module) or 0.0
        """Estimated seconds of a run of stock's code, then measured ones."""
        self._exact: Sequence[Any] | None = None
        self._has_tried_float64 = False
        bytes_of_inputs = sum(shape.bytes for shape in extracted.inputs)
        once = compile_time.expected(extracted.module.instruction_count) + self._run
        deadline.demand((1 + variants) * once + input_time.expected(bytes_of_inputs))
        try:
            self._run_stock()
        except (TimedOut, OutOfTime):
            raise
        except Exception as error:
            raise Unmeasurable(f"XLA does not run the region alone: {str(error)[:200]}") from error

    def _run_stock(self) -> None:
        stock = self._executable(self._extracted.module)
        for self._kind in KINDS:
            begin = time.perf_counter()
            self._inputs = random_inputs(self._extracted.module, self._extracted.inputs, SEED, self._kind)
            self._arguments = to_device(self._inputs)
            input_time.observe(sum(shape.bytes for shape in self._extracted.inputs), time.perf_counter() - begin)
            self._stock, self._run = self._first_run(stock, self._arguments, self._run)
            if is_finite(self._stock):
                break
        else:
            if self._extracted.routine:
                # A routine that fails returns early: its time says nothing.
                raise ValueError("its results are not finite on any inputs that were tried")

    def _first_run(self, executable: Executable, arguments: Sequence[Any], expected: float) -> tuple[list[Any], float]:
        """(results, seconds)."""
        begin = time.perf_counter()
        results = run_with_watchdog(lambda: executable(arguments), self._deadline, expected)
        return results, time.perf_counter() - begin

    def judge(self, module: Module) -> Difference:
        """Difference of the candidate's results from the right ones."""
        # A kernel's time is unknown here; it is not expected to be much slower than stock.
        got, _ = self._first_run(self._executable(module), self._arguments, self._run)
        stock = comparable(self._extracted, self._stock)
        return judge(stock, comparable(self._extracted, got), self._tolerance, self._in_float64)

    def _in_float64(self) -> Sequence[Any] | None:
        if not self._has_tried_float64:
            self._exact = self._run_in_float64()
            self._has_tried_float64 = True
        return self._exact

    def _run_in_float64(self) -> Sequence[Any] | None:
        module = in_float64(self._extracted.module)
        if module is None:
            return None
        run = running_time(module) or 0.0
        self._deadline.demand(compile_time.expected(module.instruction_count) + run)
        try:
            executable = compiled(module, self._deadline)
        except (TimedOut, OutOfTime):
            raise
        except Exception as error:
            _logger.debug("no float64 reference for %s: %s", self._extracted.anchor, error)
            return None
        results, _ = self._first_run(executable, to_device([_as_float64(value) for value in self._inputs]), run)
        return results

    def interleaved(
        self,
        modules: Sequence[Module],
        seconds: float,
        least_gain: float,
        before: Sequence[Pairs],
        *,
        retain_results: bool = False,
    ) -> list[Time]:
        """Interleaved times of stock, then of the variants.

        Args:
            before: of each variant the undisturbed samples of earlier processes.
            least_gain: gain that a variant needs besides LEAST_SECONDS, as a fraction of stock's time.
            retain_results: whether each result lives until the next one exists, so that the two have different buffers.

        Raises:
            OutOfTime: the time does not suffice for enough runs.
        """
        arguments = self._argument_rotation()
        every = (self._extracted.module, *modules)
        runners = [_RotatingCaller(self._executable(m), arguments, retain_results=retain_results) for m in every]
        settle = SETTLE if self._extracted.routine else 0.0
        return interleaved(
            runners,
            seconds=seconds,
            least=LEAST_SECONDS,
            least_gain=least_gain,
            settle=settle,
            deadline=self._deadline,
            before=before,
        )

    def interleaved_in_loop(
        self,
        looped: ExtractedModule,
        modules: Sequence[Module],
        seconds: float,
        least_gain: float,
        before: Sequence[Pairs],
    ) -> list[Time]:
        """The same in loop harnesses: seconds of an iteration.

        Args:
            looped: the region's loop harness.
            modules: the harness as each candidate dispatches it.
        """
        assert looped.loop is not None
        harnesses = [self._harness(module) for module in (looped.module, *modules)]
        most = looped.loop.most_trips
        return interleaved_iterations(
            harnesses, most=most, seconds=seconds, least_gain=least_gain, deadline=self._deadline, before=before
        )

    def _harness(self, module: Module) -> Harness:
        executable = self._executable(module)
        lists: dict[int, list[Any]] = {}

        def run(iterations: int) -> object:
            if iterations not in lists:
                lists[iterations] = [*self._arguments, *to_device([np.int32(iterations)])]
            return executable(lists[iterations])

        return run

    def _argument_rotation(self) -> list[list[Any]]:
        """Argument lists with copies of the program's inputs, enough of them that caches are as cold as in the program.

        Inputs that other instructions produce are in the caches there, too, and are not copied.
        """
        extracted = self._extracted
        outside = [place for place, is_produced in enumerate(extracted.produced) if not is_produced]
        size = sum(extracted.inputs[place].bytes for place in outside)
        copies = min(MOST_COPIES, self._footprint // max(size, 1))
        copied = to_device([self._inputs[place] for place in outside] * (copies - 1))
        rotation = [self._arguments]
        while copied:
            fresh = dict(zip(outside, copied, strict=False))
            del copied[: len(outside)]
            rotation.append([fresh.get(place, value) for place, value in enumerate(self._arguments)])
        return rotation

    def _executable(self, module: Module) -> Executable:
        """The module compiled with its context ops, which change no value."""
        if module not in self._executables:
            whole = with_context_ops(module, self._extracted, self._threads)
            self._executables[module] = compiled(whole, self._deadline, self._extracted.frozen, self._split)
        return self._executables[module]

    def reproducer(self, module: Module, found: Difference) -> Reproducer:
        return Reproducer(self._extracted.module.to_bytes(), module.to_bytes(), SEED, self._kind, found)


def compiled(
    module: Module,
    deadline: Deadline,
    frozen: AbstractSet[int] = frozenset(),
    split: Splitter | None = None,
) -> Executable:
    """Compile a module under the watchdog; with frozen inputs, as prologue and steady-state program, which it becomes.

    Raises:
        OutOfTime, TimedOut: the time does not suffice.
    """
    size = module.instruction_count
    begin = time.perf_counter()

    def made() -> Executable:
        return Executable(module) if split is None or not frozen else SplitExecutable(split(module, frozen))

    executable = run_with_watchdog(made, deadline, compile_time.expected(size))
    compile_time.observe(size, time.perf_counter() - begin)
    return executable


class _RotatingCaller:
    """Calls an executable on each argument list in turn."""

    def __init__(self, executable: Executable, arguments: Sequence[Sequence[Any]], *, retain_results: bool) -> None:
        self._executable, self._arguments, self._next = executable, arguments, 0
        self._retain_results = retain_results
        self._retained: Sequence[Any] = ()

    def __call__(self) -> None:
        self._next = (self._next + 1) % len(self._arguments)
        results = self._executable(self._arguments[self._next])
        if self._retain_results:
            self._retained = results


def _as_float64(value: Any) -> Any:
    if value.dtype.kind == "c":
        return value.astype("complex128")
    return value if value.dtype.kind in "biu" else value.astype("float64")
