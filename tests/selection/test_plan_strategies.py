"""Plan strategies: a whole program tried with every supported region in a kernel."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.extract.region import RegionExtractor
from hlo_dispatch.autotune.measurement_requests import MeasurementRequests
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.selection.measurements import DECIDED_BY_PROGRAM, STOCK, KnownMeasurements, Measurement
from hlo_dispatch.selection.strategies import (
    ALL_SUPPORTED,
    ALL_SUPPORTED_UNCONDITIONALLY,
    BEFORE_TRIAL,
    COST_MODEL,
    MEASURED_ALONE,
    MEASURED_JOINTLY,
    STRATEGIES,
    WITHOUT_TRIAL,
    Strategy,
    chosen_by,
    to_try,
)


def small_products(rows: int = 16, size: int = 48) -> bytes:
    """Three products in a row that the cost model leaves to stock."""

    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(3):
            x = jnp.tanh(x @ w)
        return x

    arguments = jnp.ones((rows, size)), jnp.ones((size, size))
    return hlo_text.from_text(jax.jit(program).lower(*arguments).compile().as_text())


def with_knowledge(known: dict[str, Measurement], strategy: Strategy) -> Pipeline:
    return replace(pipeline((), "stored").with_knowledge(KnownMeasurements(known)), strategy=strategy)


def regions_of(module: bytes) -> list[str]:
    """What stands for each region in the store."""
    plain = pipeline((), "stored")
    parsed = Module.from_bytes(module)
    requests = MeasurementRequests(parsed, plain.table, KnownMeasurements())
    graph = FlatGraph(parsed, parsed.entry)
    plain.planner.plan(graph, requests.lookup_in(graph), small=False)
    return [region.digest for region in requests.pending()]


def test_what_the_cost_model_leaves_is_taken() -> None:
    module = small_products()
    _, guessed = with_knowledge({}, COST_MODEL).run(module)
    assert not guessed.dispatched
    _, everything = with_knowledge({}, ALL_SUPPORTED).run(module)
    assert len(everything.dispatched) == 3
    assert [sequence.calls for sequence in everything.sequences] == [3]
    assert "fastest with every region in a kernel" in everything.dispatched[0].reason


@pytest.mark.parametrize(
    ("measured", "strategies"),
    [
        (Measurement(STOCK, {STOCK: 1e-3, "plain": 1.6e-3}), {ALL_SUPPORTED, ALL_SUPPORTED_UNCONDITIONALLY}),
        (Measurement(STOCK, {STOCK: 1e-3, "plain": 2.5e-3}), {ALL_SUPPORTED_UNCONDITIONALLY}),
        (Measurement(STOCK, {STOCK: 1e-3, "plain": 0.5e-3}, refused={"plain": "off by 3"}), set()),
        (Measurement(STOCK, {STOCK: 1e-3}, timed_out_after=2.0), set()),
        (Measurement(STOCK, {}, failed_attempts=2), {ALL_SUPPORTED, ALL_SUPPORTED_UNCONDITIONALLY}),
        (Measurement(STOCK, {}, failed_attempts=2, timed_out_after=2.0), set()),
    ],
    ids=["lost", "lost clearly", "wrong", "timed out", "failed attempts", "failed attempts by timing out"],
)
@pytest.mark.parametrize("strategy", [ALL_SUPPORTED, ALL_SUPPORTED_UNCONDITIONALLY], ids=lambda s: s.name)
def test_what_was_measured_alone_says_what_is_not(
    measured: Measurement, strategies: set[Strategy], strategy: Strategy
) -> None:
    # Regions with failed attempts are left to the cost model by other strategies, which leaves small ones to stock.
    module = small_products() if measured.failed_attempts else small_products(128, 128)
    found = regions_of(module)
    assert found
    _, report = with_knowledge(dict.fromkeys(found, measured), strategy).run(module)
    assert bool(report.dispatched) == (strategy in strategies)


def test_what_is_little_work_is_taken_however_much_longer_its_call_takes() -> None:
    module = small_products()
    lost = Measurement(STOCK, {STOCK: 1e-6, "plain": 250e-6})
    _, report = with_knowledge(dict.fromkeys(regions_of(module), lost), ALL_SUPPORTED).run(module)
    assert [sequence.calls for sequence in report.sequences] == [3]
    wrong = replace(lost, refused={"plain": "off by 3"})
    assert not with_knowledge(dict.fromkeys(regions_of(module), wrong), ALL_SUPPORTED).run(module)[1].dispatched


def test_what_is_too_small_to_gain_is_not_taken_where_its_result_was_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such regions are measured only where stock may be wrong; what was found of the kernel then holds."""
    module = small_products()
    wrong = Measurement(STOCK, {STOCK: 1e-3, "plain": 0.5e-3}, refused={"plain": "off by 3"})
    known = dict.fromkeys(regions_of(module), wrong)
    monkeypatch.setattr(RegionExtractor, "is_stock_within", lambda self, seconds, match: seconds > 0.5e-6)
    monkeypatch.setattr(RegionExtractor, "reads_a_reduction", lambda self, match: True)
    assert not with_knowledge(known, ALL_SUPPORTED).run(module)[1].dispatched
    monkeypatch.setattr(RegionExtractor, "reads_a_reduction", lambda self, match: False)
    assert with_knowledge({}, ALL_SUPPORTED).run(module)[1].dispatched


# --- what each strategy makes of a measurement ----------------------------------------------------------------

LOST_NARROWLY = Measurement(STOCK, {STOCK: 1e-3, "plain": 1.05e-3})
LOST_CLEARLY = Measurement(STOCK, {STOCK: 1e-3, "plain": 3e-3})
WON_NARROWLY = Measurement("plain", {STOCK: 1e-3, "plain": 0.8e-3}, 0.2e-3)
SEEMED_FASTER = Measurement(STOCK, {STOCK: 1e-3, "plain": 0.99e-3})
IS_NEEDED = replace(WON_NARROWLY, stock_error=0.5)
WRONG = replace(LOST_NARROWLY, refused={"plain": "off by 3"})
BUSY = Measurement(STOCK, {STOCK: 1e-3, "plain": 0.9e-3}, provisional=True)
MANY = 1e9
ALL = {*STRATEGIES, BEFORE_TRIAL, WITHOUT_TRIAL}
JOINT = {ALL_SUPPORTED, ALL_SUPPORTED_UNCONDITIONALLY}


@pytest.mark.parametrize(
    ("known", "by_program", "by_measurement"),
    [
        (None, JOINT, set()),
        (LOST_NARROWLY, JOINT, ALL - JOINT - {COST_MODEL}),
        (LOST_CLEARLY, {ALL_SUPPORTED_UNCONDITIONALLY}, ALL - {ALL_SUPPORTED_UNCONDITIONALLY, COST_MODEL}),
        (replace(LOST_NARROWLY, shares_fusion=True), JOINT, {MEASURED_ALONE}),
        (replace(LOST_CLEARLY, shares_fusion=True), {ALL_SUPPORTED_UNCONDITIONALLY},
         {ALL_SUPPORTED, MEASURED_ALONE, BEFORE_TRIAL, WITHOUT_TRIAL}),
        (WON_NARROWLY, set(), ALL - {COST_MODEL, BEFORE_TRIAL}),
        (SEEMED_FASTER, JOINT, ALL - JOINT - {COST_MODEL, BEFORE_TRIAL}),
        (IS_NEEDED, set(), ALL),
        (WRONG, set(), ALL),
        (BUSY, JOINT, ALL - JOINT),
        (replace(BUSY, disturbed_attempts=9), JOINT, ALL - JOINT - {COST_MODEL, BEFORE_TRIAL}),
        (Measurement(STOCK, {}, failed_attempts=1), JOINT, set()),
    ],
)  # fmt: skip
def test_what_decides_a_region(
    known: Measurement | None, by_program: set[Strategy], by_measurement: set[Strategy]
) -> None:
    verdicts = {strategy: strategy.verdict(known, MANY) for strategy in ALL}
    assert {strategy for strategy, verdict in verdicts.items() if verdict is DECIDED_BY_PROGRAM} == by_program
    assert {s for s, verdict in verdicts.items() if verdict is known and verdict is not None} == by_measurement


def trial(chosen: str, *tried: str) -> Measurement:
    return Measurement(chosen, dict.fromkeys([STOCK, chosen, *tried], 1e-3))


def test_the_store_keeps_names() -> None:
    """Names of the release before: a trial that it stored decides here as it did there."""
    assert {strategy.name: chosen_by(trial(strategy.name)) for strategy in STRATEGIES} == {
        "guessed": COST_MODEL,
        "together": MEASURED_JOINTLY,
        "apart": MEASURED_ALONE,
        "everything": ALL_SUPPORTED,
        "everything, however slow alone": ALL_SUPPORTED_UNCONDITIONALLY,
    }
    assert chosen_by(trial(STOCK)) is MEASURED_JOINTLY
    assert chosen_by(trial("a name of a later release")) is MEASURED_ALONE


def test_the_order_of_a_trial() -> None:
    assert to_try(None) == to_try(trial(STOCK)) == list(STRATEGIES)
    assert to_try(trial(COST_MODEL.name)) == list(STRATEGIES), "the trial before regions were measured"
    assert to_try(trial(ALL_SUPPORTED.name, COST_MODEL.name))[0] is ALL_SUPPORTED
    winner, *others = to_try(trial(MEASURED_ALONE.name, MEASURED_JOINTLY.name))
    assert winner is MEASURED_ALONE
    assert others[-1] is MEASURED_JOINTLY, "it was tried, and lost"


def test_the_sentinel_is_no_measurement_of_anything() -> None:
    assert not DECIDED_BY_PROGRAM.seconds
    assert Measurement("", {}) is not DECIDED_BY_PROGRAM
