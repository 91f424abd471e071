"""`bench.recurrent` and `bench.loops`: layers are what they are named after, and all ways compute the same."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from hlo_dispatch.bench import loops
from hlo_dispatch.bench.recurrent import __main__ as command
from hlo_dispatch.bench.recurrent import process
from hlo_dispatch.bench.recurrent.layers import GATES, SPELLINGS, RecurrentCase, arrays, in_jax, training_step

pytestmark = [pytest.mark.any_python, pytest.mark.usefixtures("_compiled_quickly")]

CASE = RecurrentCase("lstm", size=8, batch=2, length=5, dtype="f32")


def reference(case: RecurrentCase) -> np.ndarray:
    """PyTorch's formulas in float64, and those of the GRU that resets first."""
    weights, sequence = arrays(case)
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    h, c = np.zeros((2, case.batch, case.size))
    results = []
    for x in sequence.astype(np.float64):
        from_input, from_state = x @ w["input"].T + w["input_bias"], h @ w["state"].T + w["state_bias"]
        if case.cell == "lstm":
            i, f, g, o = np.split(from_input + from_state, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            (r, z, n), (hr, hz, hn) = np.split(from_input, 3, -1), np.split(from_state, 3, -1)
            r, z = sigmoid(r + hr), sigmoid(z + hz)
            reset = (r * h) @ w["state"][2 * case.size :].T + w["state_bias"][2 * case.size :]
            h = (1 - z) * np.tanh(n + (r * hn if case.cell == "gru" else reset)) + z * h
        results.append(h)
    return np.stack(results)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("cell", GATES)
def test_layers_are_what_they_are_called(cell: str, spelling: str) -> None:
    case = replace(CASE, cell=cell, spelling=spelling)
    layer, weights, sequence = in_jax(case)
    np.testing.assert_allclose(jax.jit(layer)(weights, sequence), reference(case), atol=1e-6)
    stepped = jax.jit(training_step(layer))(weights, sequence)
    assert all(bool((stepped[name] != weights[name]).any()) for name in weights)


def test_who_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, tmp_path: Path) -> None:
    # No import of torch succeeds, wherever this runs.
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    sizes = ("--cells", "gru16", "--batches", "2", "--lengths", "4", "--dtypes", "f32")
    output = tmp_path / "found.json"
    quick = ("--turns", "1", "--seconds", "0.01", "--policy", "heuristic", "--output", str(output))
    monkeypatch.setattr(sys, "argv", ["recurrent", *sizes, *quick, "--ways", "stock", "jit", "PyTorch"])
    command.main()
    said = capfd.readouterr().out
    assert "jit over stock" in said
    assert "torch is not installed: pip install torch" in said
    (entry,) = json.loads(output.read_text())["results"]
    assert set(entry["turns"]) == {"stock", "jit"}


def test_no_way_of_a_recurrent_layer_begins_after_its_time_limit(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    sizes = ("--cells", "gru16", "--batches", "2", "--lengths", "4", "--dtypes", "f32", "--limit", "0")
    monkeypatch.setattr(sys, "argv", ["recurrent", *sizes, "--ways", "stock", "jit"])
    command.main()
    assert "gru 16 f32 batch 2 length 4, jit: not begun within 0 s" in capfd.readouterr().out


def test_a_long_call_is_sampled_once_a_turn() -> None:
    calls = {"short": lambda: time.sleep(1e-4), "long": lambda: time.sleep(0.02)}
    samples = process.sampled(calls, seconds=0.02)
    assert len(samples["long"]) == 1
    assert samples["short"]


@pytest.mark.parametrize("name", ["kalman", "hodgkin-huxley", "lorenz"])
def test_ways_of_a_loop_compute_the_same(name: str) -> None:
    stock, jitted = loops.PROGRAMS[name]("always").values()
    np.testing.assert_allclose(jitted(), stock(), rtol=2e-3, atol=1e-4)
    assert np.isfinite(stock()).all()
