"""Stock fallback: a frozen function whose building fails is stock XLA's program, logged once and counted."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.pipeline import Pipeline

random = np.random.default_rng()
WEIGHTS, X = (jnp.asarray(random.standard_normal(shape), "float32") for shape in ((96, 64), (40, 96)))


def model(weights, x):
    return jnp.tanh(x @ weights)


def test_what_fails_is_stocks(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_, **__):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(Pipeline, "freeze", fails)
    monkeypatch.delenv("HLO_DISPATCH_STRICT")
    before = hlo_dispatch.statistics()
    with caplog.at_level(logging.WARNING, "hlo_dispatch"):
        fast = hlo_dispatch.freeze(model, WEIGHTS)
        np.testing.assert_allclose(fast(X), jax.jit(model)(WEIGHTS, X), rtol=1e-5, atol=1e-5)
        fast.update(2 * WEIGHTS)
        np.testing.assert_allclose(fast(X), jax.jit(model)(2 * WEIGHTS, X), rtol=1e-5, atol=1e-5)
    after = hlo_dispatch.statistics()
    assert (after.failures, after.modules) == (before.failures + 1, before.modules + 1)
    (program,) = fast.report.programs
    assert (len(program.prepared), len(program.kept)) == (0, 1)


def test_with_strict_it_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_, **__):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(Pipeline, "freeze", fails)
    with pytest.raises(ZeroDivisionError, match="a bug of ours"):
        hlo_dispatch.freeze(model, WEIGHTS)(X)


def test_frozen_programs_are_counted_and_reported() -> None:
    before = hlo_dispatch.statistics()
    with hlo_dispatch.enabled(policy="always"):
        hlo_dispatch.freeze(model, WEIGHTS)(X)
    after = hlo_dispatch.statistics()
    assert after.modules >= before.modules + 1
    assert after.rewritten == before.rewritten + 1
    assert [region.kernel for region in hlo_dispatch.reports()[-1].regions] == ["onednn.matmul"]
