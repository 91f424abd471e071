"""Measured selection with frozen weights: with preprocessed values, under separate digests."""

from __future__ import annotations

import numpy as np
import pytest
from measured_programs import FILTER, IMAGE, compiled, depthwise, regions_in

import hlo_dispatch
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.run import split_executable
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.ir.module import Module
from hlo_dispatch.selection.measurements import STOCK, Measurement
from hlo_dispatch.selection.strategies import ALL_SUPPORTED, COST_MODEL

pytestmark = pytest.mark.usefixtures("_own_store", "_any_answer")


def by_window(window, image):
    return depthwise(image, np.exp(1.0) * window)


def two(window, image):
    return depthwise(image, window), depthwise(image[:, :20], window * 2)


def test_a_frozen_region_has_its_own_measurement(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = split_executable.SplitExecutable.__init__

    def counted(self, split) -> None:
        made.append(len(split.preprocessed) + len(split.frozen_inputs))
        real(self, split)

    monkeypatch.setattr(split_executable.SplitExecutable, "__init__", counted)
    frozen = hlo_dispatch.freeze(by_window, FILTER)
    expected = np.asarray(compiled(by_window, FILTER, IMAGE, policy="never")(FILTER, IMAGE))
    np.testing.assert_allclose(frozen(IMAGE), expected, rtol=1e-5, atol=1e-5)
    (entry,) = regions_in(store)
    assert entry.measured.seconds
    assert len(made) >= 2, "stock and a kernel"
    assert all(made), "each has a weight that is prepared, or kept"
    before = measured_pipeline.tally.measured
    np.testing.assert_allclose(hlo_dispatch.freeze(by_window, FILTER)(IMAGE), expected, rtol=1e-5, atol=1e-5)
    assert measured_pipeline.tally.measured == before, "it is known"
    compiled(by_window, FILTER, IMAGE)
    assert measured_pipeline.tally.measured > before, "weights that come with each call are another question"
    assert len(regions_in(store)) == 2


def test_a_frozen_program_is_tried_as_a_whole(store: Store) -> None:
    frozen = hlo_dispatch.freeze(two, FILTER)
    stock = compiled(two, FILTER, IMAGE, policy="never")(FILTER, IMAGE)
    for got, expected in zip(frozen(IMAGE), stock, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert whole.thorough
    report = frozen.report.programs[0].dispatched
    assert report is not None
    assert bool(report.dispatched) == (whole.chosen != "stock")


def test_a_frozen_program_is_tried_first_with_everything_in_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be time for one way only."""
    tried: list[list[str]] = []

    def compare(stock: Module, variants, *, is_final: bool, **_) -> Measurement:
        tried.append([name for name, _ in variants])
        seconds = dict.fromkeys([STOCK, *tried[-1]], 1e-3)
        return Measurement(tried[-1][0], seconds, 1e-3, thorough=is_final, kernel=whole_program_trial.ALL_KERNELS)

    monkeypatch.setattr(whole_program_trial, "compare", compare)
    hlo_dispatch.freeze(two, FILTER)(IMAGE)
    compiled(two, FILTER, IMAGE)
    frozen, frozen_again, plain, _ = (modes[0] for modes in tried)
    assert (frozen, frozen_again) == (ALL_SUPPORTED.name, ALL_SUPPORTED.name)
    assert plain == COST_MODEL.name
