"""Two compiles finish a program: nothing is measured twice, and a third one measures nothing."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import pytest
from measured_programs import FILTER, IMAGE, W, X, calls, compiled, depthwise, forget, regions_in

from hlo_dispatch.autotune import tuner as tuner_module
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare.measure import Task, Unmeasurable
from hlo_dispatch.autotune.run.deadline import OutOfTime
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.autotune.tuner import MAX_RESERVED, RESUMED_BUDGETS, Tuner
from hlo_dispatch.ir.module import Module
from hlo_dispatch.selection.measurements import MAX_DISTURBED_ATTEMPTS, STOCK, Measurement

pytestmark = pytest.mark.usefixtures("_own_store")


def network(x, w, image, window):
    return jnp.tanh(x @ w), depthwise(image, window), depthwise(image[:, :20], window)


class Counted:
    """Stands for measuring regions and trials; counts what is asked of it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, provisional: bool = False, fails: bool = False, gain: float = 1e-3
    ) -> None:
        """Args: gain: seconds that each region gains alone, of stock's 2 ms."""
        self.trial_is_provisional = False
        self._gain = gain
        self.regions: list[str] = []
        self.trials: list[tuple[bool, float]] = []
        self._provisional, self._fails = provisional, fails
        monkeypatch.setattr(tuner_module, "measure", self.measure)
        monkeypatch.setattr(whole_program_trial, "compare", self.compare)

    def measure(self, task: Task, *_, **__) -> Measurement:
        self.regions.append(f"{task.formula} {task.shape}")
        seconds = {STOCK: 2e-3, "whole": 2e-3 - self._gain}
        chosen = "whole" if self._gain > 0 else STOCK
        return Measurement(
            chosen, seconds, max(self._gain, 0.0), formula=task.formula, provisional=self._provisional, thorough=True
        )

    def compare(
        self, stock: Module, variants, *, remaining: float, is_final: bool, is_hurried: bool, **_
    ) -> Measurement:
        name = next(iter(dict(variants)))
        self.trials.append((is_final, remaining))
        if self._fails:
            raise Unmeasurable("nobody knows how long it runs")
        known = Measurement(
            name, {STOCK: 2e-3, name: 1e-3}, 1e-3, thorough=is_final, kernel=whole_program_trial.ALL_KERNELS
        )
        if self.trial_is_provisional:
            return replace(known, chosen=STOCK, provisional=True, thorough=False)
        return replace(known, thorough=is_final and not is_hurried)


def compile_as_another_process(store: Store, counted: Counted) -> tuple[int, int]:
    """(regions, trials) that this compile measured."""
    before = len(counted.regions), len(counted.trials)
    forget(store)
    compiled(network, X, W, IMAGE, FILTER)
    return len(counted.regions) - before[0], len(counted.trials) - before[1]


def test_two_compiles_finish_a_program(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    regions, trials = compile_as_another_process(store, counted)
    assert regions == len(set(counted.regions)) == 3
    assert trials == 2
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert not whole.thorough, "regions took of its time"
    assert compile_as_another_process(store, counted) == (0, 1)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert whole.thorough
    assert compile_as_another_process(store, counted) == (0, 0)


def test_the_second_compile_ends_it_whatever_it_reached(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    reached = iter(range(100))
    left = Tuner.remaining_seconds
    # Time is up behind the first region of each compile.
    monkeypatch.setattr(
        Tuner, "remaining_seconds", lambda self: left(self) if next(reached) < 2 or not counted.regions else 0.0
    )
    compile_as_another_process(store, counted)
    assert len(regions_in(store)) == 1
    reached = iter(range(100))
    compile_as_another_process(store, counted)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert whole.thorough
    monkeypatch.setattr(Tuner, "remaining_seconds", left)
    assert compile_as_another_process(store, counted) == (0, 0), "the cost model has the others"


@pytest.mark.parametrize("gain", [0.1e-3, -0.1e-3])
def test_regions_that_the_cost_model_refuses_are_tried_together(
    store: Store, monkeypatch: pytest.MonkeyPatch, gain: float
) -> None:
    """Alone each gains little, or loses little: what they do together the program shows, before them and after."""
    counted = Counted(monkeypatch, gain=gain)
    forget(store)
    executable = compiled(lambda x, w, v: (x @ w, x @ v), X, W, W[:, ::2])
    assert len(counted.regions) == 2
    assert [is_final for is_final, _ in counted.trials] == [False, True]
    assert calls(executable) == 2


def test_a_program_without_a_trial_is_finished_as_well(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, fails=True)
    assert compile_as_another_process(store, counted)[0] == 3
    assert compile_as_another_process(store, counted) == (0, 1)
    assert compile_as_another_process(store, counted) == (0, 0)


def test_regions_leave_time_for_the_whole_program(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "5")
    compile_as_another_process(store, counted)
    monkeypatch.setattr(whole_program_trial, "expected_seconds", lambda *_: 1000.0)
    compile_as_another_process(store, counted)
    _, left = counted.trials[-1]
    assert left > MAX_RESERVED * RESUMED_BUDGETS * 5 - 1
    assert left < RESUMED_BUDGETS * 5


def test_a_program_of_too_many_regions_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two compiles use up their budgets; the cost model decides the regions that they did not reach."""
    counted = Counted(monkeypatch)
    left, regions_at_start = Tuner.remaining_seconds, 0
    # Time is up behind the first region of each compile.
    monkeypatch.setattr(
        Tuner, "remaining_seconds", lambda self: left(self) if len(counted.regions) == regions_at_start else 0.0
    )

    def without_time(*_, **__) -> Measurement:
        raise OutOfTime

    monkeypatch.setattr(whole_program_trial, "compare", without_time)
    for compiles in (1, 2, 2, 2):
        regions_at_start = len(counted.regions)
        compile_as_another_process(store, counted)
        assert len(counted.regions) == compiles
    assert any(entry.measured.is_given_up for entry in store.entries())


def test_a_machine_that_stays_busy_is_asked_a_few_times(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, provisional=True)
    for _ in range(MAX_DISTURBED_ATTEMPTS + 3):
        forget(store)
        compiled(depthwise, IMAGE, FILTER)
    assert len(counted.regions) == MAX_DISTURBED_ATTEMPTS
    (entry,) = store.entries()
    assert entry.measured.provisional
    assert entry.measured.disturbed_attempts == MAX_DISTURBED_ATTEMPTS


def test_a_busy_machine_replaces_no_lasting_verdict_and_ends_it_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    compile_as_another_process(store, counted)
    counted.trial_is_provisional = True
    assert compile_as_another_process(store, counted) == (0, 1)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert (whole.chosen != STOCK, whole.provisional, whole.thorough) == (True, False, True)
    assert compile_as_another_process(store, counted) == (0, 0)


def test_a_program_that_is_only_measured_on_a_busy_machine_is_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch, provisional=True)
    counted.trial_is_provisional = True
    measured = [compile_as_another_process(store, counted) for _ in range(MAX_DISTURBED_ATTEMPTS + 2)]
    assert [regions for regions, _ in measured] == [3] * MAX_DISTURBED_ATTEMPTS + [0, 0]
    assert measured[-2:] == [(0, 0), (0, 0)]


def test_a_compile_that_had_no_time_closes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep for good what it knew when it began, whatever others have found out since."""
    counted = Counted(monkeypatch)
    compile_as_another_process(store, counted)
    left = Tuner.remaining_seconds
    monkeypatch.setattr(Tuner, "remaining_seconds", lambda self: 0.0)
    assert compile_as_another_process(store, counted) == (0, 0)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert not whole.thorough
    monkeypatch.setattr(Tuner, "remaining_seconds", left)
    assert compile_as_another_process(store, counted) == (0, 1)
