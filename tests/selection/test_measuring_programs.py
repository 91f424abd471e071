"""Whole-program trials: what decides them, and which programs never run."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import pytest
from measured_programs import FILTER, IMAGE, W, X, calls, compiled, depthwise, forget

import hlo_dispatch
from hlo_dispatch.autotune import tuner as tuner_module
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare import comparison
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.run.deadline import OutOfTime, Unclear
from hlo_dispatch.autotune.run.time_estimate import TimeEstimate
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text
from hlo_dispatch.selection import strategies
from hlo_dispatch.selection.measurements import STOCK, Measurement
from hlo_dispatch.selection.strategies import STRATEGIES

pytestmark = pytest.mark.usefixtures("_own_store")
ALL_SUPPORTED, COST_MODEL, MEASURED_ALONE, MEASURED_JOINTLY = (
    strategy.name
    for strategy in (
        strategies.ALL_SUPPORTED,
        strategies.COST_MODEL,
        strategies.MEASURED_ALONE,
        strategies.MEASURED_JOINTLY,
    )
)


def two_layers(x, w, image, window):
    return jnp.tanh(x @ w), depthwise(image, window), depthwise(image[:, :20], window)


@pytest.mark.usefixtures("_any_answer")
def test_a_program_is_tried_as_a_whole(store: Store) -> None:
    arguments = (X, W, IMAGE, FILTER)
    executable = compiled(two_layers, *arguments)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert set(whole.seconds) <= {STOCK, *(strategy.name for strategy in STRATEGIES)}
    assert whole.thorough, "all regions were known in the end"
    assert (calls(executable) > 0) == (whole.chosen != STOCK)
    before = measured_pipeline.tally.measured
    assert calls(compiled(two_layers, *arguments)) == calls(executable)
    assert measured_pipeline.tally.measured == before


@pytest.mark.timing  # a busy machine finds each of the regions slower, and says that
@pytest.mark.usefixtures("_any_answer")
def test_a_program_that_is_faster_with_stock_is_left_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(stock: Module, variants, *, is_final: bool, **_) -> Measurement:
        assert all(b"hlo_dispatch.onednn" in module.to_bytes() for _, module in variants)
        seconds = {STOCK: 1e-3, MEASURED_ALONE: 2e-3}
        return Measurement(
            STOCK, seconds, thorough=is_final, formula="all of it", kernel=whole_program_trial.ALL_KERNELS
        )

    monkeypatch.setattr(whole_program_trial, "compare", lost)
    assert calls(compiled(two_layers, X, W, IMAGE, FILTER)) == 0
    reasons = {region.reason for region in hlo_dispatch.reports()[-1].regions if region.refusal is not None}
    assert "the whole program was measured: stock 1 ms against 2 ms" in reasons
    monkeypatch.undo()
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(store.directory))
    forget(store)
    assert calls(compiled(two_layers, X, W, IMAGE, FILTER, policy="stored")) == 0


@pytest.mark.parametrize(
    ("stock", "together", "apart", "chosen"),
    [
        (3.0, 1.0, 2.0, MEASURED_JOINTLY),
        (3.0, 2.0, 1.0, MEASURED_ALONE),
        (1.0, 2.0, 2.0, STOCK),
        (1.0, 1.0, 1.0, STOCK),
    ],
)
def test_which_program_is_chosen(monkeypatch, stock: float, together: float, apart: float, chosen: str) -> None:
    module = Module.from_bytes(from_text("HloModule m\nENTRY e { ROOT x = f32[4]{0} parameter(0) }"))
    times = [Time(seconds, stock - seconds, 0.001) for seconds in (stock, together, apart)]
    monkeypatch.setattr(whole_program_trial, "interleaved", lambda runners, **_: times)
    between = {MEASURED_JOINTLY: together, MEASURED_ALONE: apart}
    monkeypatch.setattr(whole_program_trial, "fastest", lambda named, **_: (min(named, key=between.__getitem__), {}))
    measured_pipeline.executable.start()
    assert whole_program_trial.compare(module, {MEASURED_JOINTLY: module, MEASURED_ALONE: module}).chosen == chosen


@pytest.mark.usefixtures("_any_answer")
@pytest.mark.parametrize("quick", [COST_MODEL, ALL_SUPPORTED])
def test_what_won_before_is_tried_first(store: Store, monkeypatch: pytest.MonkeyPatch, quick: str) -> None:
    """In the end there may be time for one variant only."""
    tried: list[list[str]] = []

    def compare(stock: Module, variants, *, is_final: bool, **_) -> Measurement:
        tried.append([name for name, _ in variants])
        chosen = tried[-1][0] if is_final else quick
        return Measurement(
            chosen, {STOCK: 2e-3, chosen: 1e-3}, 1e-3, thorough=is_final, kernel=whole_program_trial.ALL_KERNELS
        )

    monkeypatch.setattr(whole_program_trial, "compare", compare)
    compiled(two_layers, X, W, IMAGE, FILTER)
    assert len(tried) == 2
    # Where no region won by itself, there is nothing to try together.
    is_everything = quick == ALL_SUPPORTED or MEASURED_JOINTLY not in tried[1]
    assert tried[1][0] == (ALL_SUPPORTED if is_everything else MEASURED_JOINTLY)


@pytest.mark.parametrize("fitting", [1, 2])
@pytest.mark.parametrize("is_hurried", [True, False])
def test_a_trial_that_was_cut_short_goes_on_later(monkeypatch, fitting: int, is_hurried: bool) -> None:
    module = Module.from_bytes(from_text("HloModule m\nENTRY e { ROOT x = f32[4]{0} parameter(0) }"))
    monkeypatch.setattr(
        whole_program_trial.TrialPrograms, "has_time_for_one_more", lambda self: len(self.names) < fitting
    )
    measured_pipeline.executable.start()
    both = {MEASURED_JOINTLY: module, ALL_SUPPORTED: module}
    found = whole_program_trial.compare(module, both, is_hurried=is_hurried)
    assert set(found.seconds) == {STOCK, *list(both)[:fitting]}
    # That there is no third variant it does not know before it asked for one.
    assert found.thorough == (not is_hurried)
    assert (
        whole_program_trial.compare(module, {MEASURED_JOINTLY: module}, is_hurried=is_hurried, is_final=False).thorough
        is False
    )
    monkeypatch.setattr(whole_program_trial.TrialPrograms, "has_time_for_one_more", lambda self: True)
    assert whole_program_trial.compare(module, both, is_hurried=is_hurried).thorough


@pytest.mark.usefixtures("_any_answer")
def test_who_was_not_tried_comes_behind_who_won(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[list[str], bool]] = []

    def compare(stock: Module, variants, *, is_final: bool, is_hurried: bool = False, **_) -> Measurement:
        tried.append(([name for name, _ in variants], is_hurried))
        first = tried[-1][0][0]
        is_thorough = is_final and not is_hurried
        return Measurement(
            first, {STOCK: 2e-3, first: 1e-3}, 1e-3, thorough=is_thorough, kernel=whole_program_trial.ALL_KERNELS
        )

    monkeypatch.setattr(whole_program_trial, "compare", compare)
    compiled(two_layers, X, W, IMAGE, FILTER)
    (_, quick), (modes, final) = tried
    assert not quick
    assert final, "its regions took of the time"
    forget(store)
    compiled(two_layers, X, W, IMAGE, FILTER)
    assert tried[2:] == [(modes, False)]


# --- the program first -------------------------------------------------------------------------------------


@pytest.fixture
def _only_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget ends after the trial of the cost model's plan."""
    measure = tuner_module.Tuner.__call__

    def without_time(*arguments) -> int:
        with pytest.MonkeyPatch.context() as context:
            context.setattr(tuner_module.Tuner, "remaining_seconds", lambda self: 0.0)
            return measure(*arguments)

    monkeypatch.setattr(tuner_module.Tuner, "__call__", without_time)


@pytest.mark.usefixtures("_only_programs")
@pytest.mark.parametrize(("gain", "dispatched"), [(-0.3, False), (0.004, False), (0.5, True)])
def test_the_first_compile_is_the_better_of_cost_model_and_stock(
    store: Store, monkeypatch: pytest.MonkeyPatch, gain: float, dispatched: bool
) -> None:
    def scripted_times(runners, **_) -> list[Time]:
        return [Time(1.0, 0.0, 0.0)] + [Time(1.0 - gain, gain, 0.0)] * (len(runners) - 1)

    monkeypatch.setattr(whole_program_trial, "interleaved", scripted_times)
    first = compiled(two_layers, X, W, IMAGE, FILTER)
    guessed = compiled(two_layers, X, W, IMAGE, FILTER, policy="heuristic")
    assert calls(guessed) >= 2
    assert calls(first) == (calls(guessed) if dispatched else 0)
    (entry,) = store.entries()
    assert set(entry.measured.seconds) == {STOCK, COST_MODEL}
    assert not entry.measured.thorough
    # The next compile has time for the regions, and then for what follows from them.
    monkeypatch.undo()
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(store.directory))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    monkeypatch.setattr(Time, "may_win", lambda *_: False)
    compiled(two_layers, X, W, IMAGE, FILTER)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert whole.thorough


@pytest.mark.usefixtures("_any_answer")
def test_a_loop_of_known_length_is_tried_as_a_whole(store: Store) -> None:
    def loop(image, window):
        def step(image, _):
            return depthwise(depthwise(image, window) + 1, window), None

        return jax.lax.scan(step, image, None, length=5)[0]

    executable = compiled(loop, IMAGE, FILTER)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert (calls(executable) > 0) == (whole.chosen != STOCK)


def test_what_takes_too_long_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Module.from_bytes(from_text("HloModule m\nENTRY e { ROOT x = f32[4]{0} parameter(0) }"))
    measured_pipeline.executable.start()
    with pytest.raises(OutOfTime):
        whole_program_trial.compare(module, {COST_MODEL: module}, remaining=0.0)
    compiles = []
    now = [0.0]
    real = comparison.Executable

    def slow(module: Module):
        compiles.append(1)
        now[0] += 3.0
        return real(module)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(comparison, "Executable", slow)
    monkeypatch.setattr(comparison, "compile_time", TimeEstimate(0.1, 0.0))
    with pytest.raises(OutOfTime):
        whole_program_trial.compare(module, {COST_MODEL: module}, remaining=5.0)
    assert len(compiles) == 1, "stock alone has shown that there is no time for the rest"


@pytest.mark.usefixtures("_any_answer")
def test_a_program_that_takes_too_long_is_tried_by_two_processes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the whole budget before it; the third one does not even compile it."""
    tried = []

    def compare(*_, **__):
        tried.append(1)
        raise OutOfTime

    monkeypatch.setattr(whole_program_trial, "compare", compare)

    def network(image, window):
        return depthwise(depthwise(image, window) + 1, window)

    for _ in range(3):
        tried.clear()
        monkeypatch.setattr(tuner_module, "measure", no_answer)
        compiled(network, IMAGE, FILTER)
        forget(store)
    assert tried == []
    assert {
        entry.measured.failed_attempts
        for entry in store.entries()
        if entry.measured.kernel == whole_program_trial.ALL_KERNELS
    } == {2}


def no_answer(*_, **__):
    raise Unclear
