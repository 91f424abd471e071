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
from hlo_dispatch.selection.measurements import (
    ALL_SUPPORTED,
    ALL_SUPPORTED_UNCONDITIONALLY,
    DECIDED_BY_PROGRAM,
    STOCK,
    KnownMeasurements,
    Measurement,
)


def small_products(rows: int = 16, size: int = 48) -> bytes:
    """Three products in a row that the cost model leaves to stock."""

    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(3):
            x = jnp.tanh(x @ w)
        return x

    arguments = jnp.ones((rows, size)), jnp.ones((size, size))
    return hlo_text.from_text(jax.jit(program).lower(*arguments).compile().as_text())


def with_knowledge(known: dict[str, Measurement], strategy: str) -> Pipeline:
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
    _, guessed = with_knowledge({}, "guessed").run(module)
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
@pytest.mark.parametrize("strategy", [ALL_SUPPORTED, ALL_SUPPORTED_UNCONDITIONALLY])
def test_what_was_measured_alone_says_what_is_not(measured: Measurement, strategies: set[str], strategy: str) -> None:
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


def test_the_sentinel_is_no_measurement_of_anything() -> None:
    assert not DECIDED_BY_PROGRAM.seconds
    assert Measurement("", {}) is not DECIDED_BY_PROGRAM
