"""Budgets of measurements: work that does not fit is not started, on a simulated clock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from measured_programs import FILTER, IMAGE, W, X, compiled, depthwise, forget

import hlo_dispatch
from hlo_dispatch.autotune import tuner as tuner_module
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare import comparison, measure
from hlo_dispatch.autotune.compare.timing import fewest_calls, interleaved
from hlo_dispatch.autotune.progress import ProgressLine
from hlo_dispatch.autotune.run import watchdog
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime
from hlo_dispatch.autotune.run.time_estimate import TimeEstimate
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.selection.measurements import STOCK, Measurement

pytestmark = pytest.mark.any_processor


class Clock:
    """Stands still but for what is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(measure, "sleep", self.pass_by)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def call(self, seconds: float):
        return lambda: self.pass_by(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("once", [1e-5, 1e-3, 0.05, 0.4, 2.0])
@pytest.mark.parametrize("left", [0.01, 0.3, 2.0, 30.0])
def test_a_trial_is_over_in_time(clock: Clock, once: float, left: float) -> None:
    """Nothing is clear: both are as fast, and without a deadline they would run for ever so long."""
    begin = clock.now
    try:
        interleaved([clock.call(once), clock.call(once)], seconds=1e9, least=0.0, deadline=Deadline(left))
    except OutOfTime:
        pass
    # The first calls of the first one say how long a call takes.
    assert clock.now - begin <= max(left, 2 * once) + 4 * once


@pytest.mark.parametrize("once", [0.03, 0.3, 2.0])
def test_a_long_trial_takes_as_few_calls_as_is_said(clock: Clock, once: float) -> None:
    """Of what takes long each call counts: an answer may cost no more of them than it has to."""
    most = 2 * fewest_calls(once) * once + 1e-6
    times = interleaved([clock.call(once), clock.call(once / 2)], seconds=0.0, deadline=Deadline(most))
    assert times[1].wins(0.001)
    assert fewest_calls(2.0) < fewest_calls(0.3) < fewest_calls(0.03)


def test_an_earlier_deadline_keeps_its_reserve(clock: Clock) -> None:
    deadline = Deadline(10.0, reserved=3.0).earlier(2.0)
    deadline.demand(5.0)
    with pytest.raises(OutOfTime):
        deadline.demand(5.5)


def test_a_trial_that_fits_is_run(clock: Clock) -> None:
    stock, own = interleaved([clock.call(0.02), clock.call(0.01)], seconds=1.0, deadline=Deadline(1.0))
    assert own.wins(0.001)
    assert stock.seconds == pytest.approx(0.02)


class SlowMachine:
    """Every compile takes as long as it says, and so does every run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock, compile_seconds: float, run: float) -> None:
        self.compiles, self.runs = 0, 0
        real = comparison.Executable
        machine = self

        class Slow(real):
            def __init__(self, serialized: bytes) -> None:
                machine.compiles += 1
                super().__init__(serialized)
                clock.pass_by(compile_seconds)

            def __call__(self, arguments):
                machine.runs += 1
                clock.pass_by(run)
                return super().__call__(arguments)

        monkeypatch.setattr(comparison, "Executable", Slow)
        # Nothing is known of this machine yet.
        for module in (comparison, whole_program_trial):
            monkeypatch.setattr(module, "compile_time", TimeEstimate(0.03, 0.2e-3))
            monkeypatch.setattr(module, "input_time", TimeEstimate(1e-3, 3e-9))
        # Only this clock counts, however slow the machine is that the tests run on.
        monkeypatch.setattr(watchdog, "GRACE", 600.0)


@pytest.mark.parametrize("budget", [0.2, 1.0, 5.0])
@pytest.mark.parametrize(("compile_seconds", "run"), [(0.05, 1e-3), (0.3, 0.02), (0.9, 0.001), (0.1, 0.5)])
def test_no_module_takes_longer_than_its_budget_and_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, budget: float, compile_seconds: float, run: float
) -> None:
    """Six different regions and a whole program, on machines that are up to fifty times slower than expected."""
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", str(budget))
    measured_pipeline._given_up.clear()
    machine = SlowMachine(monkeypatch, clock, compile_seconds, run)

    def program(x, w, image, window):
        products = [(x[:, :size] @ w[:size]).sum() for size in (128, 160, 192)]
        return products, [depthwise(image[:, :rows], window) for rows in (28, 20, 12)]

    begin = clock.now
    try:
        compiled(program, X, W, IMAGE, FILTER)
    finally:
        hlo_dispatch.uninstall()
    # One compile and one run may take longer than expected, before the machine has shown how slow it is.
    assert clock.now - begin <= budget + 1.0
    assert machine.compiles > 0 or budget < 1.0
    assert measured_pipeline.tally.unreached or budget > 1.0


def test_the_next_compile_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """What there was no time for is not given up, in the same process either."""
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "1")
    measured_pipeline._given_up.clear()
    asked: list[str] = []

    def late(task, effort, keep, *, timed: bool, deadline: Deadline) -> Measurement:
        asked.append(task.shape)
        if len(asked) == 1:
            raise OutOfTime
        return Measurement(STOCK, {STOCK: 1.0}, formula=task.formula, shape=task.shape, kernel=task.kernel)

    monkeypatch.setattr(tuner_module, "measure", late)
    try:
        for _ in range(2):
            compiled(depthwise, IMAGE, FILTER)
    finally:
        hlo_dispatch.uninstall()
    assert len(asked) == 2


def test_two_compiles_finish_what_takes_three_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    budget = 5.0
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", str(budget))
    measured_pipeline._given_up.clear()
    spent: list[float] = []
    said: list[float] = []

    def say(self, what: str, done: int, count: int, left: float) -> None:
        if what and len(said) == len(spent):
            said.append(left)

    def slow(task, effort, keep, *, timed: bool, deadline: Deadline) -> Measurement:
        deadline.demand(2.0)
        clock.pass_by(2.0)
        return Measurement(STOCK, {STOCK: 1.0}, formula=task.formula, shape=task.shape, kernel=task.kernel)

    def compare(stock, variants, *, is_final: bool, **_) -> Measurement:
        return Measurement(
            STOCK, {STOCK: 1.0}, thorough=is_final, formula="all of it", kernel=whole_program_trial.ALL_KERNELS
        )

    def program(image, window):
        return [depthwise(image[:, :rows], window) for rows in (28, 24, 20, 16, 12, 10)]

    monkeypatch.setattr(tuner_module, "measure", slow)
    monkeypatch.setattr(whole_program_trial, "compare", compare)
    monkeypatch.setattr(ProgressLine, "__call__", say)
    try:
        for _ in range(3):
            begin = clock.now
            compiled(program, IMAGE, FILTER)
            spent.append(clock.now - begin)
    finally:
        hlo_dispatch.uninstall()
    assert budget / 2 < spent[0] <= budget + 1.0
    assert budget < spent[1] <= tuner_module.RESUMED_BUDGETS * budget
    assert spent[2] == 0
    # The time reserved for the whole-program trial is part of the limit that a user reads.
    assert said == pytest.approx([budget, tuner_module.RESUMED_BUDGETS * budget], abs=0.1)


def test_a_program_that_compiles_slowly_leaves_time_for_its_regions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Unrolled layers: few different regions, and a trial of the whole program that hardly fits."""
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "5")
    regions: list[str] = []
    trials: list[bool] = []

    def measured(task, *_, **__) -> Measurement:
        clock.pass_by(1.0)
        regions.append(task.shape)
        return Measurement(STOCK, {STOCK: 1.0}, formula=task.formula, shape=task.shape, kernel=task.kernel)

    def compare(stock, variants, *, remaining: float, reserved: float, is_final: bool, **_) -> Measurement:
        Deadline(remaining, reserved).demand(4.0)
        trials.append(is_final)
        return Measurement(STOCK, {STOCK: 1.0}, thorough=is_final, kernel=whole_program_trial.ALL_KERNELS)

    monkeypatch.setattr(tuner_module, "measure", measured)
    monkeypatch.setattr(whole_program_trial, "compare", compare)
    done: list[tuple[int, int]] = []
    try:
        for _ in range(3):
            forget(Store(tmp_path))
            compiled(lambda image, w: [depthwise(image[:, :rows], w) for rows in (28, 20, 12, 28)], IMAGE, FILTER)
            done.append((len(regions), len(trials)))
    finally:
        hlo_dispatch.uninstall()
    assert done == [(3, 0), (3, 1), (3, 1)]
