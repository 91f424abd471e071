"""Measurement inside a user's compile: once, within its budget, and without side effects."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import FILTER, IMAGE, calls, compiled, depthwise, forget, regions_in

import hlo_dispatch
from hlo_dispatch.autotune import tuner as tuner_module
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.selection.measurements import STOCK
from side_by_side import assert_close

pytestmark = pytest.mark.usefixtures("_own_store")


@pytest.fixture
def _busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """So much else is going on that nothing can be told."""
    monkeypatch.setattr(Time, "wins", lambda *_: False)
    monkeypatch.setattr(Time, "may_win", lambda *_: True)


# --- in a compile ------------------------------------------------------------------------------------------


@pytest.mark.timing
@pytest.mark.usefixtures("_any_answer")
def test_a_region_is_measured_once(store: Store) -> None:
    before = measured_pipeline.tally.measured
    first = compiled(depthwise, IMAGE, FILTER)
    assert measured_pipeline.tally.measured == before + 1
    (entry,) = store.entries()
    measured = entry.measured
    assert set(measured.seconds) >= {STOCK, measured.chosen}
    assert all(0 < seconds < 1 for seconds in measured.seconds.values())
    assert calls(first) == (measured.chosen != STOCK)
    assert all(value < 1e-5 for value in measured.differences.values())
    report = hlo_dispatch.reports()[-1]
    assert report.regions[0].reason.startswith("measured: ")
    # XLA's depthwise convolutions are several times slower than oneDNN's, on any machine.
    assert measured.chosen != STOCK, measured
    assert_close(np.asarray(first(IMAGE, FILTER)), np.asarray(jax.jit(depthwise)(IMAGE, FILTER)))
    # The same region in another program, in what would be another process.
    forget(store)
    compiled(lambda x, w: depthwise(x, w), IMAGE, FILTER)
    assert measured_pipeline.tally.measured == before + 1
    assert "match and select" in hlo_dispatch.reports()[-1].stages


@pytest.mark.usefixtures("_any_answer")
def test_stored_never_measures(store: Store) -> None:
    before = measured_pipeline.tally.measured
    guessed = compiled(depthwise, IMAGE, FILTER, policy="stored")
    assert (measured_pipeline.tally.measured, store.entries()) == (before, [])
    assert not hlo_dispatch.reports()[-1].regions[0].reason.startswith("measured")
    assert calls(guessed) == 1, "the cost model knows depthwise convolutions"
    compiled(depthwise, IMAGE, FILTER)
    exported = store.export()
    store.remove()
    assert store.load(exported) == 1
    forget(store)
    compiled(depthwise, IMAGE, FILTER, policy="stored")
    assert hlo_dispatch.reports()[-1].regions[0].reason.startswith("measured: ")


@pytest.mark.usefixtures("_any_answer")
def test_without_a_budget_the_cost_model_decides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "0")
    measured_pipeline.tally.unreached.clear()
    compiled(depthwise, IMAGE, FILTER)
    assert store.entries() == []
    assert len(measured_pipeline.tally.unreached) == 1
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    compiled(depthwise, IMAGE, FILTER)
    assert len(store.entries()) == 1, "a later compile goes on where this one stopped"


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_budget_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", text)
    with pytest.raises(hlo_dispatch.PolicyError, match="HLO_DISPATCH_MEASURE_SECONDS is"):
        hlo_dispatch.install()


def test_a_failure_is_counted_and_the_cost_model_decides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLO_DISPATCH_STRICT")

    def fail(*_, **__):
        raise ZeroDivisionError("deliberate")

    monkeypatch.setattr(tuner_module, "measure", fail)
    before, failures = hlo_dispatch.statistics(), measured_pipeline.tally.failures
    executable = compiled(lambda x, w: depthwise(x, w) * 2, IMAGE, FILTER)
    assert calls(executable) == 1
    assert hlo_dispatch.statistics().failures == before.failures
    assert measured_pipeline.tally.failures == failures + 1
    assert store.entries() == []


@pytest.mark.usefixtures("_busy")
def test_what_cannot_be_told_is_asked_another_time(store: Store) -> None:
    before = measured_pipeline.tally.unclear
    for process in (1, 2, 3):
        executable = compiled(lambda x, w: depthwise(x, w) + 3, IMAGE, FILTER)
        assert measured_pipeline.tally.unclear == before + min(process, 2), "two processes try it, the others leave it"
        (entry,) = store.entries()
        assert (entry.measured.failed_attempts, entry.measured.seconds) == (min(process, 2), {})
        assert calls(executable) == 1, "as the cost model says"
        forget(store)


@pytest.mark.usefixtures("_busy")
def test_tuning_repeats_failed_attempts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        compiled(lambda x, w: depthwise(x, w) + 3, IMAGE, FILTER)
        forget(store)
    monkeypatch.setattr(Time, "may_win", lambda *_: False)
    (region,) = hlo_dispatch.tune(lambda x, w: depthwise(x, w) + 3, IMAGE, FILTER).regions
    (entry,) = regions_in(store)
    assert (entry.measured.failed_attempts, entry.measured.chosen) == (0, region.chosen)


@pytest.mark.parametrize("size", [2, 8])
def test_tiny_products_stay_as_they_are(store: Store, size: int) -> None:
    small = np.ones((size, size), "float32")
    before = measured_pipeline.tally.measured
    assert calls(compiled(lambda x, w: x @ w, small, small)) == 0

    def steps(x, w):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, length=1000)

    assert calls(compiled(steps, small, small)) == 0
    assert (measured_pipeline.tally.measured, store.entries()) == (before, [])


def test_many_tiny_products_stay_as_they_are(store: Store) -> None:
    """The program of https://github.com/openxla/xla/issues/5875, whose products became 38 times slower in oneDNN."""

    @jax.vmap
    @jax.grad
    def program(x):
        out = 0
        for i in range(50):
            y = x @ jnp.array([i, i + 1], dtype=jnp.float32)
            out = out + y * x[0]
        return out

    assert calls(compiled(program, jnp.ones((2, 2)))) == 0
    assert store.entries() == []


@pytest.mark.timing
@pytest.mark.usefixtures("_any_answer")
def test_the_users_settings_do_not_matter_and_stay(store: Store) -> None:
    with jax.debug_nans(True), jax.enable_x64(True):
        executable = compiled(depthwise, IMAGE, FILTER)
        assert jnp.asarray(np.float64(1)).dtype == "float64"
    assert jnp.asarray(np.float64(1)).dtype == "float32"
    assert calls(executable) == 1
    assert len(store.entries()) == 1


@pytest.mark.timing
@pytest.mark.usefixtures("_any_answer")
def test_a_compile_inside_a_trace(store: Store) -> None:
    """What measuring does there must happen, not be written down."""
    found = []

    def program(x):
        found.append(compiled(depthwise, IMAGE, FILTER))
        return x + 1

    assert jax.jit(program)(1.0) == 2.0
    assert calls(found[0]) == 1
    assert len(store.entries()) == 1
