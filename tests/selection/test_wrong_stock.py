"""Where stock XLA itself is wrong, as float64 shows, the right kernel is chosen, whatever its time."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from measured_programs import B, W, X, calls, compiled, dense, forget

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch.autotune.compare import comparison
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.compare.validation import judge
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.selection.measurements import STOCK, KnownMeasurements, Measurement
from warm import run_python

RIGHT = np.linspace(-3, 3, 100)
NEAR = RIGHT.astype("float32") * np.float32(1 + 1e-6)


@pytest.mark.parametrize(
    ("stock", "error"),
    [(RIGHT * 0.5, 0.5), (np.where(RIGHT > 2, np.nan, RIGHT), math.inf), (RIGHT * 1.001, 0.0), (RIGHT, 0.0)],
    ids=["half", "NaN", "merely less exact", "right"],
)
def test_who_is_wrong(stock: np.ndarray, error: float) -> None:
    found = judge([stock.astype("float32")], [NEAR], 1e-5, lambda: [RIGHT])
    assert not found
    assert found.stock_error == pytest.approx(error, rel=1e-3)


def test_without_float64_nobody_is_right() -> None:
    found = judge([(RIGHT * 0.5).astype("float32")], [NEAR], 1e-5, lambda: None)
    assert found
    assert found.stock_error == 0.0


def test_a_kernel_that_is_wrong_as_well_is_refused() -> None:
    assert judge([(RIGHT * 0.5).astype("float32")], [(RIGHT * 3).astype("float32")], 1e-5, lambda: [RIGHT])


def test_how_it_is_said_and_kept() -> None:
    measured = Measurement("whole", {STOCK: 1e-6, "whole": 1e-3}, stock_error=0.9)
    assert (
        measured.sentence("brg") == "stock is wrong by 0.9 of the largest value, as float64 shows; measured: 1 ms (brg)"
    )
    with_nan = Measurement("whole", {STOCK: 1e-6, "whole": 1e-3}, stock_error=math.inf)
    assert "wrong with NaN" in with_nan.sentence()
    assert Measurement.from_dict(json.loads(json.dumps(with_nan.to_dict()))) == with_nan


@pytest.fixture
def _wrong_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stock's results are wrong, and it is twice as fast as any kernel."""
    monkeypatch.setattr(comparison, "judge", lambda stock, *others: judge([3 * value for value in stock], *others))
    monkeypatch.setattr(
        comparison,
        "interleaved",
        lambda runners, **_: [Time(1.0, 0.0, 0.0)] + [Time(2.0, -1.0, 0.0)] * (len(runners) - 1),
    )


@pytest.mark.usefixtures("_own_store", "_wrong_stock")
def test_the_right_kernel_wins_though_it_is_slower(store: Store) -> None:
    executable = compiled(dense, X, W, B)
    assert calls(executable) == 1
    (entry,) = store.entries()
    assert entry.measured.chosen != STOCK
    assert entry.measured.stock_error > 0.1
    (region,) = hlo_dispatch.reports()[-1].regions
    assert region.reason.startswith("stock is wrong by ")
    forget(store)
    assert calls(compiled(dense, X, W, B, policy="stored")) == 1


@pytest.mark.usefixtures("_own_store", "_wrong_stock")
def test_a_whole_program_that_is_faster_with_stock_keeps_the_right_kernels(store: Store) -> None:
    def two(x, w, b):
        return dense(x, w, b), dense(x[:48], w, b)

    executable = compiled(two, X, W, B)
    whole = [entry.measured for entry in store.entries() if entry.measured.formula.startswith("all of")]
    assert calls(executable) == 2, whole


def test_what_is_known_of_it_changes_the_key_of_the_compilation_cache() -> None:
    right = KnownMeasurements({"r": Measurement("whole", {STOCK: 1.0, "whole": 2.0}, stock_error=0.9)})
    assert right.fingerprint != KnownMeasurements({"r": Measurement(STOCK, {STOCK: 1.0, "whole": 2.0})}).fingerprint


CHILD = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
import hlo_dispatch
found = []
for shape in ((2, 16, 16, 16), (2, 32, 32, 16)):
    x = np.random.default_rng(0).standard_normal(shape, dtype="float32")
    exact = x.astype("float64").sum((1, 2)) @ np.ones((16, 4))
    def program(x):
        return x.sum((1, 2)) @ jnp.ones((16, 4))
    stock = np.asarray(jax.jit(lambda x: program(x))(x))
    with hlo_dispatch.enabled():
        compiled = jax.jit(lambda x: program(x)).lower(x).compile()
        got = np.asarray(compiled(x))
    reasons = [region.reason for region in hlo_dispatch.reports()[-1].regions]
    apart = [float(np.abs(value - exact).max() / np.abs(exact).max()) for value in (stock, got)]
    found.append([*apart, reasons])
print(json.dumps(found))
"""


def test_a_sum_times_a_matrix(tmp_path: Path) -> None:
    """Stock XLA fuses the two and computes something else (jax 0.10.2 and 0.12.0.1); with the pass it is right."""
    environment = clean_environment(HLO_DISPATCH_CACHE_DIR=str(tmp_path), HLO_DISPATCH_MEASURE_SECONDS="60")
    done = run_python(CHILD, environment=environment)
    assert done.returncode == 0, done.stderr
    for stock, dispatched, reasons in json.loads(done.stdout):
        assert dispatched < 1e-5
        is_said = any(reason.startswith("stock is wrong") for reason in reasons)
        assert is_said == (not stock < 1e-2), "where stock is right, nothing is said against it"
