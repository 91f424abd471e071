"""Alternative kernels: products by oneMKL instead of oneDNN, plain, frozen, and where they were measured faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.autotune.compare import comparison
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.match.match import Match, Variant
from hlo_dispatch.selection import family_cost_models
from side_by_side import assert_close

GEMM = "onemkl.gemm"
RANDOM = np.random.default_rng(13)


def values(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / 8).astype(np.float32)


@pytest.fixture
def _forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is a product is oneMKL's."""

    def preferred_variants(_: Any, match: Match, machine: object) -> Iterator[Variant]:
        yield Variant(GEMM, match.with_kernel(GEMM) if GEMM in match.kernels else match)

    monkeypatch.setattr(family_cost_models.AnchorCostModel, "preferred_variants", preferred_variants)


def kernels_of(function: Callable[..., Any], *arguments: Any) -> list[str]:
    with hlo_dispatch.enabled(policy="always"):
        report = hlo_dispatch.explain(function, *arguments)
    return [region.kernel for region in report.dispatched]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "one row": (lambda x, w, b: jnp.tanh(x @ w + b), (values(1, 65), values(65, 130), values(130))),
    "gelu": (lambda x, w, b: jax.nn.gelu(x @ w + b), (values(37, 65), values(65, 130), values(130))),
    "gelu by erf": (lambda x, w: jax.nn.gelu(x @ w, approximate=False), (values(37, 65), values(65, 130))),
    "residual": (lambda x, w, r: jax.nn.relu(x @ w + r), (values(37, 65), values(65, 131), values(37, 131))),
    "rows of a batch": (lambda x, w, b: jax.nn.silu(x @ w + b), (values(3, 7, 65), values(65, 40), values(40))),
    "transposed": (lambda x, w: jnp.exp(x.T @ w.T), (values(65, 33), values(40, 65))),
    "a number for each row": (lambda x, w, s: (x @ w) * s[:, None], (values(37, 65), values(65, 40), values(37))),
    "one column": (lambda x, w: jax.nn.sigmoid(x @ w), (values(200, 65), values(65, 1))),
}


@pytest.mark.usefixtures("_forced")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_stock_gives(name: str) -> None:
    function, arguments = PROGRAMS[name]
    expected = jax.jit(lambda *a: function(*a))(*arguments)
    with hlo_dispatch.enabled(policy="always"):
        dispatched = jax.jit(lambda *a: function(*a)).lower(*arguments).compile()
    assert f"hlo_dispatch.{GEMM}" in dispatched.as_text()
    assert_close(np.asarray(dispatched(*arguments)), np.asarray(expected))


@pytest.mark.usefixtures("_forced")
def test_what_it_does_not_multiply_is_left() -> None:
    """Several products at once, and other types."""
    assert GEMM not in kernels_of(lambda a, b: a @ b, values(3, 40, 50), values(3, 50, 60))
    half = values(64, 64).astype(jnp.bfloat16)
    assert GEMM not in kernels_of(lambda a, b: a @ b, half, half)


def network(p: dict[str, Any], x: Any) -> Any:
    hidden = jax.nn.gelu(x @ p["w"] + p["b"])
    return jax.nn.relu(hidden @ p["v"] + x)


def weights(scale: float = 1.0) -> dict[str, Any]:
    generator = np.random.default_rng(3)
    sizes = {"w": (1024, 4098), "b": (4098,), "v": (4098, 1024)}
    return {n: jnp.asarray(generator.standard_normal(s, np.float32) * scale / 32) for n, s in sizes.items()}


@pytest.mark.usefixtures("_forced")
@pytest.mark.parametrize("rows", [1, 5, 67])
def test_frozen_weights_are_prepacked_and_give_what_stock_gives(rows: int) -> None:
    p, x = weights(), values(rows, 1024)
    expected = jax.jit(lambda p, x: network(p, x))(p, x)
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(network, p)
        assert_close(np.asarray(fast(x)), np.asarray(expected))
        (program,) = fast.report.programs
        assert program.dispatched is not None
        assert [region.kernel for region in program.dispatched.dispatched] == [GEMM] * 2
        # On some processors oneMKL wants ten megabytes besides for every panel, which is not worth it for both.
        assert any(value.is_packed for value in program.prepared), program.prepared
        again = weights(0.5)
        fast.update(again)
        assert_close(np.asarray(fast(x)), np.asarray(jax.jit(lambda p, x: network(p, x))(again, x)))
        with ThreadPoolExecutor(2) as threads:
            first = np.asarray(fast(x))
            for found in threads.map(lambda _: np.asarray(fast(x)), range(20)):
                np.testing.assert_array_equal(found, first)


@pytest.mark.usefixtures("_forced")
def test_layers_of_a_scan_are_prepacked_one_by_one() -> None:
    """Taken out of their array, packed weights lie wherever there is room."""
    layers, x = values(3, 1600, 1600), values(70, 1600)

    def program(layers: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, layers)[0]

    expected = np.asarray(jax.jit(lambda *a: program(*a))(layers, x))
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(program, jnp.asarray(layers))
        assert_close(np.asarray(fast(x)), expected)
        assert_close(np.asarray(fast(2 * x)), np.asarray(jax.jit(lambda *a: program(*a))(layers, 2 * x)))
    (report,) = fast.report.programs
    assert report.dispatched is not None
    assert [region.kernel for region in report.dispatched.dispatched] == [GEMM]


def winning(kernel: str) -> Callable[..., list[Time]]:
    """A timing that the variant of this place wins."""
    place = {"stock": 0, "onednn.matmul": 1, GEMM: 2}[kernel]

    def interleaved(runners: list[Any], **_: Any) -> list[Time]:
        gains = [0.9 if len(runners) == 2 or number == place else 0.1 for number in range(1, len(runners))]
        return [Time(1.0, 0.0, 0.0), *(Time(1.0 - gain, gain, 0.0) for gain in gains)]

    return interleaved


@pytest.mark.parametrize("winner", ["onednn.matmul", GEMM])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_measuring_tries_both_and_takes_the_faster(
    winner: str, is_frozen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    monkeypatch.setattr(comparison, "interleaved", winning(winner))
    function, (x, w, b) = PROGRAMS["gelu"]
    expected = jax.jit(lambda *a: function(*a))(x, w, b)
    with hlo_dispatch.enabled(policy="measure"):
        if is_frozen:
            fast = hlo_dispatch.freeze(lambda x: function(x, w, b))
            found = fast(x)
            report = fast.report.programs[0].dispatched
            assert report is not None
            kernels = [region.kernel for region in report.dispatched]
        else:
            compiled = jax.jit(lambda *a: function(*a)).lower(x, w, b).compile()
            found = compiled(x, w, b)
            kernels = [kernel for kernel in ("onednn.matmul", GEMM) if f"hlo_dispatch.{kernel}" in compiled.as_text()]
    assert_close(np.asarray(found), np.asarray(expected))
    (entry,) = [entry.measured for entry in Store(tmp_path).entries() if entry.measured.kernel == "onednn.matmul"]
    assert {"whole", GEMM} <= set(entry.seconds)
    assert entry.chosen == ("whole" if winner == "onednn.matmul" else GEMM)
    assert kernels == [winner]
    hlo_dispatch.uninstall()
