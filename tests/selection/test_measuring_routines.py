"""Measurement of library calls: on inputs that the routine needs, each library against stock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare import comparison
from hlo_dispatch.autotune.compare import measure as measure_module
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.run.factorization_results import comparable
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.autotune.whole_program_trial import ALL_KERNELS
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.selection.measurements import STOCK, Measurement
from processor import needs_avx512
from side_by_side import assert_close

RANDOM = np.random.default_rng(11)
SIZE = 60


def matrix(*shape: int, dtype: str = "float32") -> np.ndarray:
    value = RANDOM.standard_normal(shape)
    return (value + 1j * RANDOM.standard_normal(shape) if dtype == "complex64" else value).astype(dtype)


def covariance(x):
    """Computed in the fusion that also symmetrises: random numbers in front of it are no covariance behind it."""
    return jnp.linalg.cholesky(jnp.exp(-jnp.square(x[:, None] - x[None])) + 0.1 * jnp.eye(SIZE))


def lower(a, b):
    return jax.scipy.linalg.solve_triangular(a, b, lower=True)


PROGRAMS = {
    "cholesky": (jnp.linalg.cholesky, (matrix(SIZE, SIZE),), 1),
    "cholesky f64": (jnp.linalg.cholesky, (matrix(SIZE, SIZE, dtype="float64"),), 1),
    "cholesky, many": (jnp.linalg.cholesky, (matrix(7, SIZE, SIZE),), 1),
    "covariance": (covariance, (matrix(SIZE),), 1),
    "triangular solve": (lower, (matrix(SIZE, SIZE), matrix(SIZE, 9)), 1),
    "triangular solve, one vector": (lower, (matrix(SIZE, SIZE), matrix(SIZE)), 1),
    "lu": (jax.lax.linalg.lu, (matrix(SIZE, SIZE + 4),), 1),
    "qr": (jnp.linalg.qr, (matrix(SIZE + 20, SIZE),), 2),
    "qr, many": (jnp.linalg.qr, (matrix(5, SIZE, SIZE),), 2),
    "eigh": (jnp.linalg.eigh, (matrix(SIZE, SIZE),), 1),
    "eigh, many": (jnp.linalg.eigh, (matrix(6, SIZE, SIZE),), 1),
    "eigh, complex": (jnp.linalg.eigh, (matrix(SIZE, SIZE, dtype="complex64"),), 1),
    "eigenvalues": (jnp.linalg.eigvalsh, (matrix(SIZE, SIZE),), 1),
    "svd": (jnp.linalg.svd, (matrix(SIZE, SIZE + 20),), 1),
    "svd, thin": (lambda a: jnp.linalg.svd(a, full_matrices=False), (matrix(SIZE + 20, SIZE),), 1),
    "fft": (jnp.fft.fft, (matrix(SIZE, SIZE),), 1),
    "fft, columns": (lambda a: jnp.fft.fft(a, axis=0), (matrix(SIZE, SIZE, dtype="complex64"),), 1),
}


def short(timed: Callable[..., list[Time]]) -> Callable[..., list[Time]]:
    """The timing over after the few turns it has in any case, and nobody waited for."""
    return lambda runners, **options: timed(runners, **(options | {"seconds": 0.0, "settle": 0.0}))


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    # However busy the machine is, somebody is found to be faster; who it is does not matter, so timings are short.
    monkeypatch.setattr(Time, "may_win", lambda *_: False)
    for module in (comparison, whole_program_trial):
        monkeypatch.setattr(module, "interleaved", short(module.interleaved))
    yield
    hlo_dispatch.uninstall()


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_library_is_measured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function, arguments, count = PROGRAMS[name]
    finite: list[bool] = []
    real = comparison.is_finite
    monkeypatch.setattr(comparison, "is_finite", lambda values: finite.append(real(values)) or finite[-1])
    with jax.enable_x64(True), hlo_dispatch.enabled():
        compiled = jax.jit(lambda *a: function(*a)).lower(*arguments).compile()
    everything = Store(tmp_path).entries()
    # Of several calls the program is tried as a whole, too.
    entries = [entry for entry in everything if entry.measured.kernel != ALL_KERNELS]
    assert len(entries) == count
    assert finite == [True] * count, "the inputs are what the routine wants at the first attempt"
    for entry in entries:
        variants = set(entry.measured.seconds) - {STOCK}
        assert not entry.measured.refused
        assert "onemkl." in " ".join(variants)
        assert ("scipy." in " ".join(variants)) == ("fft" not in name)
        assert all(np.isfinite(value) for value in entry.measured.differences.values())
    report = hlo_dispatch.reports()[-1]
    chosen = sum(entry.measured.chosen != STOCK for entry in entries)
    assert len(report.dispatched) == chosen or len(everything) > count
    assert len(report.dispatched) == compiled.as_text().count('custom_call_target="hlo_dispatch.')
    before = measured_pipeline.tally.measured
    with jax.enable_x64(True), hlo_dispatch.enabled():
        jax.jit(lambda *a: function(*a)).lower(*arguments).compile()
    assert measured_pipeline.tally.measured == before


def measured_cholesky(folder: Path) -> tuple[Measurement, str]:
    """Compile a Cholesky factor; its only measurement in the store there, and the compiled text."""
    value = matrix(SIZE, SIZE)
    positive = value @ value.T + SIZE * np.eye(SIZE, dtype="float32")
    with hlo_dispatch.enabled():
        compiled = jax.jit(lambda a: jnp.linalg.cholesky(a)).lower(positive).compile()
    assert_close(np.asarray(compiled(positive)), np.linalg.cholesky(positive.astype("float64")), 1e-5)
    (entry,) = Store(folder).entries()
    return entry.measured, compiled.as_text()


@pytest.mark.parametrize("winner", ["onemkl.", "scipy.", pytest.param("blocked.", marks=needs_avx512), STOCK])
def test_the_one_that_wins_is_called(winner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cost model says."""

    def interleaved(runners, **_) -> list[Time]:
        # In the order in which the cost model, which knows the processor, queries the kernels.
        gains = [0.5 if variant.startswith(winner) else -0.5 if winner == STOCK else 0.1 for variant in variants]
        if len(runners) < 1 + len(variants):
            gains = [0.5]  # the winner, once more
        return [Time(1.0, 0.0, 0.0), *(Time(1.0 - gain, gain, 0.0) for gain in gains)]

    variants: list[str] = []
    real = measure_module.measure

    def noted(task, *arguments, **options):
        variants[:] = [name for name, _ in task.variants]
        return real(task, *arguments, **options)

    monkeypatch.setattr("hlo_dispatch.autotune.tuner.measure", noted)
    monkeypatch.setattr(comparison, "interleaved", interleaved)
    measured, text = measured_cholesky(tmp_path)
    assert measured.chosen == winner if winner == STOCK else measured.chosen.startswith(winner)
    assert ("hlo_dispatch." + winner in text) == (winner != STOCK)


@pytest.mark.parametrize("losers", [1, 2, 3])
def test_a_variant_that_loses_a_confirmation_gives_way_to_the_next(
    losers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fastest may be so only for as long as one timing lasts; the second is not stock's fault."""
    timings = 0

    def interleaved(runners, **_) -> list[Time]:
        nonlocal timings
        first, lost = timings == 0, timings <= losers
        timings += 1
        gains = [0.9 - 0.2 * number for number in range(len(runners) - 1)] if first else [0.0 if lost else 0.5]
        return [Time(1.0, 0.0, 0.0), *(Time(1.0 - gain, gain, 0.0) for gain in gains)]

    monkeypatch.setattr(comparison, "interleaved", interleaved)
    measured, text = measured_cholesky(tmp_path)
    variants = [variant for variant in measured.seconds if variant != STOCK]
    expected = variants[losers] if losers < len(variants) else STOCK
    assert measured.chosen == expected
    assert all(measured.seconds[variant] == 1.0 for variant in variants[:losers]), "what it took at last"
    assert ("hlo_dispatch." in text) == (expected != STOCK)


def extracted(routine: str, arrays: dict[str, np.ndarray]) -> ExtractedModule:
    logical = tuple(
        (name, tuple((size, stride // array.itemsize) for size, stride in zip(array.shape, array.strides, strict=True)))
        for name, array in arrays.items()
    )
    return ExtractedModule(b"", "", (), (), (), (), routine, logical)


def buffers(arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [array.ravel(order="K") for array in arrays.values()]


@pytest.mark.parametrize("order", ["C", "F"])
def test_which_way_vectors_point_does_not_matter(order: str) -> None:
    value = matrix(9, 9).astype("float64")
    w, v = np.linalg.eigh(value + value.T)
    found = {"v": np.asarray(v, order=order), "w": w}
    turned = {"v": np.asarray(v * np.where(np.arange(9) % 2, 1, -1), order=order), "w": w}
    about = extracted("eigh", found)
    right = comparable(about, buffers(found))
    np.testing.assert_allclose(right[0], value + value.T, atol=1e-12)
    for expected, actual in zip(right, comparable(about, buffers(turned)), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-12)
    for wrong in ({"v": found["v"], "w": w[::-1].copy()}, {"v": np.asarray(2 * v, order=order), "w": w / 4}):
        assert np.abs(comparable(about, buffers(wrong))[0] - right[0]).max() > 0.1 or (
            np.abs(comparable(about, buffers(wrong))[1] - right[1]).max() > 0.1
        )


def test_singular_vectors_are_compared_by_their_product() -> None:
    value = matrix(5, 8).astype("float64")
    u, s, vt = np.linalg.svd(value)
    found = {"s": s, "u": np.asfortranarray(u), "vt": np.asfortranarray(vt)}
    about = extracted("svd", found)
    right = comparable(about, buffers(found))
    np.testing.assert_allclose(right[0], value, atol=1e-12)
    turned = {"s": s, "u": np.asfortranarray(-u), "vt": np.asfortranarray(np.vstack([-vt[:5], vt[5:]]))}
    for expected, actual in zip(right, comparable(about, buffers(turned)), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-12)
    wrong = {"s": s, "u": np.asfortranarray(-u), "vt": np.asfortranarray(vt)}
    assert np.abs(comparable(about, buffers(wrong))[0] - value).max() > 0.1
