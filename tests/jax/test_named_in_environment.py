"""HLO_DISPATCH_POLICY and HLO_DISPATCH_TABLES where HLO_DISPATCH=1 is not said: they hold, and an argument wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch

POLICY, TABLES = "HLO_DISPATCH_POLICY", "HLO_DISPATCH_TABLES"
BAD = r"HLO_DISPATCH_POLICY is 'fastest'; unset it, or say one of measure, stored, heuristic, always, never"
W = jnp.asarray(np.eye(8), "float32")
X = jnp.ones((2, 8))


def program(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def rewritten(**arguments: Any) -> hlo_dispatch.Report:
    module = jax.jit(program).lower(W, X).compile().as_text()
    return hlo_dispatch.rewrite(module, **arguments).report


def frozen() -> hlo_dispatch.Report:
    fast = hlo_dispatch.freeze(program, W)
    fast(X)
    report = fast.report.programs[0].dispatched
    assert report is not None
    return report


def explained() -> hlo_dispatch.Report:
    return hlo_dispatch.explain(program, W, X)


def installed(policy: str | None = None) -> hlo_dispatch.Report:
    with hlo_dispatch.enabled(policy=policy):
        jax.jit(lambda x: program(W, x) + 0).lower(X).compile()
        return hlo_dispatch.reports()[-1]


@pytest.mark.parametrize("dispatching", [rewritten, frozen, explained, installed])
def test_the_policy_holds_everywhere(dispatching: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Eight columns are too few for the cost model.
    assert not dispatching().dispatched
    monkeypatch.setenv(POLICY, "always")
    assert dispatching().dispatched
    monkeypatch.setenv(POLICY, "")
    assert not dispatching().dispatched
    monkeypatch.setenv(POLICY, "fastest")
    with pytest.raises(hlo_dispatch.PolicyError, match=BAD):
        dispatching()


def test_an_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for named in ("always", "fastest"):
        monkeypatch.setenv(POLICY, named)
        assert not rewritten(policy="never").dispatched
        assert not installed(policy="never").dispatched
        with hlo_dispatch.enabled(policy="never"):
            assert not frozen().dispatched
            assert not explained().dispatched


def test_a_wrong_policy_is_said_before_a_frozen_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POLICY, "fastest")
    with pytest.raises(hlo_dispatch.PolicyError, match=BAD):
        hlo_dispatch.freeze(program, W)


@pytest.mark.parametrize("dispatching", [rewritten, frozen, explained, installed])
def test_tables_hold_everywhere(dispatching: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = tmp_path / "mine.yaml"
    wrong.write_text("version: 1\nactivations:\n  cube:\n    formula: x *\n")
    monkeypatch.setenv(TABLES, str(wrong))
    with pytest.raises(hlo_dispatch.TableError, match=r"mine.yaml:\d+:"):
        dispatching()
    monkeypatch.setenv(TABLES, str(tmp_path / "nowhere.yaml"))
    with pytest.raises(hlo_dispatch.TableError, match=r"nowhere.yaml:1:1: there is no such table; HLO_DISPATCH_TABLES"):
        dispatching()


def test_tables_of_an_argument_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(TABLES, str(tmp_path / "nowhere.yaml"))
    assert rewritten(tables=(), policy="always").dispatched
    with hlo_dispatch.enabled(tables=(), policy="always"):
        assert frozen().dispatched
