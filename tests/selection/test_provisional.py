"""Provisional measurements of a busy machine: left to the cost model, and measured again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import FILTER, IMAGE, calls, compiled, depthwise, forget, regions_in

import hlo_dispatch
from hlo_dispatch.autotune.compare.measure import Task
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.findings import Findings, Names
from hlo_dispatch.autotune.run.deadline import OutOfTime, Unclear
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.cli import cache_view
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.measurements import (
    MAX_DISTURBED_ATTEMPTS,
    STOCK,
    KnownMeasurements,
    Measurement,
    Pairs,
)

BUSY = Measurement(STOCK, {STOCK: 1e-3, "whole": 1.5e-3}, provisional=True, formula="x * w", shape="f32[8]")
QUIET = Measurement("whole", {STOCK: 1e-3, "whole": 0.5e-3}, 0.5e-3)
STOCK_TIME = Time(1e-3, 0.0, 0.0)
DISTURBED_LOSS = Time(1.5e-3, -0.5e-3, 1e-6, is_disturbed=True)
DISTURBED_WIN = Time(0.85e-3, 0.15e-3, 1e-6, is_disturbed=True)
FAR_AHEAD_AT_LEAST = Time(1.1e-3, -0.1e-3, 1e-4, is_disturbed=True, least=0.5e-3)
LARGE_DISTURBED_WIN = Time(0.3e-3, 0.7e-3, 1e-6, is_disturbed=True)
WIN = Time(0.8e-3, 0.2e-3, 1e-6)
LOSS = Time(1.5e-3, -0.5e-3, 1e-6)


@pytest.fixture
def scripted_times(store: Store, _own_store: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Time]]:
    """What each timing finds of the kernel, in turn; the last for every later one."""
    times: list[Time] = []

    def interleaved(runners, **_) -> list[Time]:
        own = times.pop(0) if len(times) > 1 else times[0]
        return [STOCK_TIME, *[own] * (len(runners) - 1)]

    monkeypatch.setattr("hlo_dispatch.autotune.compare.comparison.interleaved", interleaved)
    monkeypatch.setattr("hlo_dispatch.autotune.compare.measure.PAUSE", 0.0)
    forget(store)
    yield times
    forget(store)


class Outcomes:
    """Stands for measuring a region: each call has the next outcome."""

    def __init__(self, outcomes: Iterable[Measurement | Unclear]) -> None:
        self._outcomes = iter(outcomes)
        self.before: list[Mapping[str, Pairs]] = []
        """The samples that each call was given."""

    def __call__(self, task: Task, *_: object, **__: object) -> Measurement:
        self.before.append(task.before)
        outcome = next(self._outcomes)
        if isinstance(outcome, Measurement):
            return outcome
        raise outcome


def measured_in(store: Store) -> Measurement:
    (entry,) = regions_in(store)
    return entry.measured


@pytest.mark.parametrize("times", [(DISTURBED_LOSS,), (DISTURBED_WIN,), (WIN, DISTURBED_LOSS)])
def test_the_cost_model_decides_and_the_next_process_measures_again(
    store: Store, scripted_times: list[Time], times: tuple[Time, ...]
) -> None:
    scripted_times.extend(times)
    before = measured_pipeline.tally.measured
    assert calls(compiled(depthwise, IMAGE, FILTER)) == 1, "as the cost model has it"
    assert measured_in(store).provisional
    (region,) = hlo_dispatch.reports()[-1].regions
    assert "provisional: the machine was busy (measured: " in region.reason
    # This process does not try again; the next one does, and its answer stays.
    compiled(depthwise, IMAGE, FILTER)
    assert measured_pipeline.tally.measured == before + 1
    forget(store)
    scripted_times[:] = [LOSS]
    assert calls(compiled(depthwise, IMAGE, FILTER)) == 0
    assert measured_in(store).chosen == STOCK
    assert not measured_in(store).provisional
    forget(store)
    scripted_times[:] = [DISTURBED_WIN]
    compiled(depthwise, IMAGE, FILTER)
    assert measured_pipeline.tally.measured == before + 2


def test_stored_leaves_it_to_the_cost_model(store: Store, scripted_times: list[Time]) -> None:
    scripted_times.append(DISTURBED_LOSS)
    compiled(depthwise, IMAGE, FILTER)
    forget(store)
    assert calls(compiled(depthwise, IMAGE, FILTER, policy="stored")) == 1
    assert "provisional" in hlo_dispatch.reports()[-1].regions[0].reason


def test_a_large_win_is_lasting(store: Store, scripted_times: list[Time]) -> None:
    scripted_times.append(LARGE_DISTURBED_WIN)
    compiled(depthwise, IMAGE, FILTER)
    assert not measured_in(store).provisional
    assert measured_in(store).chosen != STOCK


def small_matrices(count: int = 512) -> tuple[Callable[..., Any], Any]:
    """A program whose one region the cost model leaves to stock."""
    half = np.random.default_rng(0).standard_normal((count, 3, 3), "float32")
    return jnp.linalg.cholesky, half @ half.swapaxes(1, 2) + 3 * np.eye(3, dtype="float32")


@pytest.mark.parametrize(("slowdown", "taken"), [(1.5, 1), (8.0, 0)])
def test_a_variant_far_behind_is_left_meanwhile(
    store: Store, scripted_times: list[Time], slowdown: float, taken: int
) -> None:
    """On a machine that is never quiet, too, a kernel that takes many times as long is not what the cost model says."""
    scripted_times.append(Time(slowdown * 1e-3, (1 - slowdown) * 1e-3, 1e-6, is_disturbed=True))
    assert calls(compiled(depthwise, IMAGE, FILTER)) == taken
    assert measured_in(store).provisional


@pytest.mark.parametrize("own", [FAR_AHEAD_AT_LEAST, DISTURBED_WIN])
def test_a_variant_far_ahead_by_least_times_is_taken_meanwhile(
    store: Store, scripted_times: list[Time], own: Time
) -> None:
    scripted_times.append(own)
    assert calls(compiled(*small_matrices())) == (own is FAR_AHEAD_AT_LEAST)
    assert measured_in(store).provisional
    # Nothing lasts of it: undisturbed, stock may have won.
    scripted_times[:] = [LOSS]
    forget(store)
    assert calls(compiled(*small_matrices())) == 0
    assert not measured_in(store).provisional


def test_one_disturbed_trial_takes_no_win_away(store: Store, scripted_times: list[Time]) -> None:
    scripted_times.extend([WIN, DISTURBED_LOSS])
    compiled(depthwise, IMAGE, FILTER)
    assert measured_in(store).chosen != STOCK


def test_an_undecided_confirmation_is_no_verdict_of_stock(store: Store, scripted_times: list[Time]) -> None:
    undecided = Time(1e-3, 1e-6, 1e-4)
    assert undecided.may_win(1e-3, 30e-6)
    scripted_times.extend([Time(0.93e-3, 0.07e-3, 5e-6), undecided])
    assert calls(compiled(depthwise, IMAGE, FILTER)) == 1
    assert measured_in(store).failed_attempts


@pytest.mark.parametrize("own", [DISTURBED_WIN, Time(1e-3, 1e-6, 1e-4)], ids=["disturbed", "unclear"])
def test_the_next_process_goes_on_with_the_samples(
    store: Store, scripted_times: list[Time], monkeypatch: pytest.MonkeyPatch, own: Time
) -> None:
    pairs = ((1e-3, 0.85e-3), (1.1e-3, 0.95e-3))
    given: list[Sequence[Pairs]] = []

    def interleaved(runners, *, before: Sequence[Pairs], **_) -> list[Time]:
        given.append(before)
        return [STOCK_TIME, replace(own, pairs=pairs)]

    monkeypatch.setattr("hlo_dispatch.autotune.compare.comparison.interleaved", interleaved)
    for _ in range(2):
        compiled(depthwise, IMAGE, FILTER)
        forget(store)
    assert given == [[()], [pairs]]


def test_samples_survive_a_confirmation_without_time(
    store: Store, scripted_times: list[Time], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs: Pairs = ((1e-3, 0.8e-3),)
    scripted_times.append(replace(WIN, pairs=pairs))

    def without_time(*_: object, **__: object) -> None:
        raise OutOfTime

    monkeypatch.setattr("hlo_dispatch.autotune.compare.measure.sleep", without_time)
    compiled(depthwise, IMAGE, FILTER)
    assert list(measured_in(store).samples.values()) == [pairs]


@pytest.mark.usefixtures("_own_store")
def test_samples_survive_a_process_without_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unclear in one process, out of time in the next: the third one goes on with what there is."""
    pairs: Pairs = ((1e-3, 0.85e-3), (1.1e-3, 0.95e-3))
    monkeypatch.setattr(
        "hlo_dispatch.autotune.tuner.measure", outcomes := Outcomes([Unclear({"whole": pairs}), OutOfTime()])
    )
    for _ in range(2):
        compiled(depthwise, IMAGE, FILTER)
        forget(store)
    assert outcomes.before == [{}, {"whole": pairs}]
    assert measured_in(store).samples == {"whole": pairs}
    assert measured_in(store).is_given_up


@pytest.mark.usefixtures("_own_store")
@pytest.mark.parametrize("after", [[BUSY, Unclear()] * 20, [Unclear()] * 20], ids=["in turns", "then quiet"])
def test_a_machine_that_is_busy_and_quiet_is_asked_a_few_times(
    store: Store, monkeypatch: pytest.MonkeyPatch, after: list[Measurement | Unclear]
) -> None:
    """Disturbed in one process, unclear in the next: none of the two ends it alone."""
    monkeypatch.setattr("hlo_dispatch.autotune.tuner.measure", outcomes := Outcomes([BUSY, *after]))
    for _ in range(20):
        compiled(depthwise, IMAGE, FILTER)
        forget(store)
    assert len(outcomes.before) <= 2 * MAX_DISTURBED_ATTEMPTS


@pytest.mark.usefixtures("_own_store")
def test_samples_of_variants_that_are_not_tried_again_stay(store: Store) -> None:
    findings = Findings(store, this_context(), timed=True)
    first, second = ((1.0, 2.0),), ((1.0, 3.0),)
    findings.failed("a", Names("", "", ""), is_thorough=False, samples={"one": first, "other": first})
    findings.stored("a", replace(BUSY, samples={"one": second}))
    known = store.get(this_context(), "a")
    assert known is not None
    assert known.samples == {"one": second, "other": first}


def test_what_does_not_end_replaces_a_provisional_measurement(store: Store) -> None:
    findings = Findings(store, this_context(), timed=True)
    findings.stored("a", BUSY)
    findings.failed("a", Names("", "", ""), is_thorough=False, timed_out_after=9)
    known = store.get(this_context(), "a")
    assert known is not None
    assert known.timed_out_after == 9
    assert not known.is_worth_remeasuring


def test_a_lasting_measurement_is_not_replaced(store: Store) -> None:
    here = this_context()
    store.put(here, "a", BUSY)
    assert store.get(here, "a") == BUSY
    store.put(here, "a", QUIET)
    store.put(here, "a", BUSY)
    assert store.get(here, "a") == QUIET
    store.put(here, "b", replace(BUSY, thorough=True))
    store.put(here, "b", QUIET)
    assert store.get(here, "b") == QUIET


def test_it_says_so() -> None:
    said = "provisional: the machine was busy (measured: stock 1 ms against 1.5 ms)"
    assert BUSY.sentence() == said
    assert (
        KnownMeasurements({"a": BUSY}).fingerprint
        != KnownMeasurements({"a": replace(BUSY, provisional=False)}).fingerprint
    )


@pytest.mark.usefixtures("_own_store")
def test_cache_show_says_so(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.put(this_context(), "a", BUSY)
    cache_view.show(regions=True, as_json=False)
    assert "provisional: the machine was busy" in " ".join(capsys.readouterr().out.split())


def test_what_earlier_versions_stored_is_lasting() -> None:
    values = QUIET.to_dict()
    del values["provisional"]
    assert Measurement.from_dict(values) == QUIET
