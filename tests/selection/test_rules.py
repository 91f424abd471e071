"""Acceptance rules: the reason of a region that is left although its kernel seems faster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from hlo_dispatch.autotune.compare.acceptance_rules import missing_gain
from hlo_dispatch.autotune.compare.comparison import Unmeasurable
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.whole_program_trial import compare
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.jax_plugin.tuning import Tuned, tune_module
from hlo_dispatch.selection.measurements import STOCK, Measurement

STOCK_TIME = Time(247e-6, 0.0, 0.0)
FASTER = Time(180e-6, 67e-6, 5e-6)
UNCERTAIN = Time(180e-6, 67e-6, 25e-6)
TOO_LITTLE = Time(240e-6, 7e-6, 0.1e-6)
NEVER_FASTER = Time(240e-6, -2e-6, 5e-6)
SLOWER = Time(300e-6, -53e-6, 1e-6)


@pytest.mark.parametrize(
    ("time", "says"),
    [
        (UNCERTAIN, "its gain of 67 µs, uncertain by 25 µs, is not surely more than the 15 µs that it has to gain"),
        (TOO_LITTLE, "its gain of 7 µs is less than the 15 µs that it has to gain"),
        (NEVER_FASTER, "compared turn by turn it gains nothing"),
        (SLOWER, ""),
    ],
)
def test_each_rule_has_a_sentence(time: Time, says: str) -> None:
    assert missing_gain(time, STOCK_TIME.seconds, 15e-6) == says


@pytest.fixture(scope="module")
def product() -> bytes:
    return optimized(lambda x, w: jnp.tanh(x @ w), np.ones((256, 256), "float32"), np.ones((256, 256), "float32"))


Tune = Callable[..., Tuned]


@pytest.fixture
def tuned(product: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tune:
    """Tune a product whose timings end as they are told to: the second of each pair is for every later one.

    As a whole, its program is tried with the time `whole`; None: it cannot be.
    """

    def tune(*timings: Time, whole: Time | None = None) -> Tuned:
        remaining = list(timings)

        def program(runners, **_) -> list[Time]:
            if whole is None:
                raise Unmeasurable("no trial")
            return [STOCK_TIME, *[whole] * (len(runners) - 1)]

        def interleaved(runners, **_) -> list[Time]:
            own = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            return [STOCK_TIME, *[own] * (len(runners) - 1)]

        monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr("hlo_dispatch.autotune.compare.comparison.interleaved", interleaved)
        monkeypatch.setattr("hlo_dispatch.autotune.whole_program_trial.interleaved", program)
        monkeypatch.setattr("hlo_dispatch.autotune.compare.measure.PAUSE", 0.0)
        return tune_module(product)

    return tune


@pytest.mark.usefixtures("_any_answer")
@pytest.mark.parametrize(
    ("timings", "says"),
    [
        ((UNCERTAIN,), ", but its gain of 67 µs, uncertain by 25 µs, is not surely more than the 14.9 µs that"),
        ((TOO_LITTLE,), ", but its gain of 7 µs is less than the 14.9 µs that it has to gain"),
        ((FASTER, TOO_LITTLE), ", but it won one trial and not another, in which its gain of 7 µs is less than the"),
        ((FASTER, SLOWER), ", but it won one trial and not another, in which it was slower"),
    ],
    ids=["uncertain", "too little", "won once", "slower the second time"],
)
def test_the_report_says_which(tuned: Tune, timings: tuple[Time, ...], says: str) -> None:
    (region,) = tuned(*timings).report.left
    assert says in region.reason, region.reason
    assert region.reason.startswith("measured: stock 247 µs against ")


@pytest.mark.usefixtures("_any_answer")
def test_what_was_slower_needs_no_more_words(tuned: Tune) -> None:
    (region,) = tuned(SLOWER).report.left
    assert region.reason.startswith("measured: stock 247 µs against 300 µs")
    assert "but" not in region.reason


@pytest.mark.usefixtures("_any_answer")
@pytest.mark.parametrize(("region", "whole"), [(TOO_LITTLE, FASTER), (FASTER, SLOWER)])
def test_a_program_of_one_call_is_what_its_trial_says(tuned: Tune, region: Time, whole: Time) -> None:
    """A region has to gain ten microseconds and more alone, and a program loses by nothing that its region gains."""
    assert bool(tuned(region, whole=whole).report.dispatched) == (whole is FASTER)


def test_a_program_as_a_whole(product: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hlo_dispatch.autotune.whole_program_trial.interleaved", lambda *_, **__: [STOCK_TIME, Time(245e-6, 2e-6, 1e-6)]
    )
    module = Module.from_bytes(product)
    verdict = compare(module, {"guessed": module})
    assert verdict.chosen == STOCK
    assert verdict.sentence().endswith(
        "stock 247 µs against 245 µs, but its gain of 2 µs is less than the 2.47 µs that it has to gain"
    )


def test_what_an_earlier_version_stored_is_read() -> None:
    values = Measurement(STOCK, {STOCK: 1e-3, "whole": 2e-3}).to_dict()
    del values["why"]
    assert Measurement.from_dict(values).why == ""
