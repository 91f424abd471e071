"""The verdicts of `bench.never_slower`, and that a run goes on where another one stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from environment import clean_environment
from hlo_dispatch.bench.frozen import FLOAT32, difference
from hlo_dispatch.bench.programs import BenchProgram, is_inference, model, random_regions
from hlo_dispatch.bench.verdict import ALWAYS, DONATED, FROZEN, SETTLED, STOCK, Result, summary

pytestmark = pytest.mark.any_python

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kind", "ratio", "calls", "is_unchanged", "verdict"),
    [
        ("models", 0.981, 3, False, "ok"), ("models", 0.979, 3, False, "SLOWER"), ("models", 0.9, 0, True, "unchanged"),
        ("regions", 0.951, 1, False, "ok"), ("regions", 0.949, 1, False, "SLOWER"),
        ("regions", float("nan"), 0, True, "unchanged"),
        ("tiny", 1.0, 0, False, "CHANGED"), ("tiny", 0.99, 0, True, "unchanged"), ("tiny", 0.97, 0, True, "OTHER TIME"),
        ("tiny", 1.03, 0, True, "OTHER TIME"), ("tiny", float("nan"), 0, True, "OTHER TIME"),
    ],
)  # fmt: skip
def test_verdict(kind: str, ratio: float, calls: int, is_unchanged: bool, verdict: str) -> None:
    seconds = {STOCK: 1.0, SETTLED: 1.0}
    result = Result(kind, "x", seconds, {SETTLED: ratio}, {SETTLED: calls}, is_unchanged=is_unchanged)
    assert result.verdict == verdict
    assert result.is_good == (verdict in ("ok", "unchanged"))
    assert ("(x)" in summary(kind, [result])) == (not result.is_good or calls > 0)


@pytest.mark.parametrize(
    ("always", "tuned", "calls", "verdict"),
    [
        (2.0, 1.0, 0, "unchanged"),
        (0.5, 1.0, 0, "SLOWER"),
        (0.5, 0.51, 3, "ok"),
        (0.5, 0.6, 3, "SLOWER"),
        (2.0, 1.2, 3, "SLOWER"),
    ],
)
def test_verdict_of_a_training_step(always: float, tuned: float, calls: int, verdict: str) -> None:
    """Against the faster of stock and the policy "always": stock's program is no excuse where that is slower."""
    seconds = {STOCK: 1.0, ALWAYS: always, SETTLED: tuned}
    result = Result("training", "x", seconds, {}, {SETTLED: calls}, is_unchanged=calls == 0)
    result.ratios = {SETTLED: seconds[result.reference] / tuned}
    assert result.verdict == verdict
    assert f"stock 1000.000 ms, always {always * 1e3:.3f} ms" in result.line


@pytest.mark.parametrize(
    ("ratio", "difference", "peak", "verdict"),
    [
        (1.5, 1e-6, 1.0, "ok"), (0.981, 0.9e-4, 1.09, "ok"), (0.979, 0, 1.0, "SLOWER"), (1.5, 1.1e-4, 1.0, "WRONG"),
        (1.5, float("nan"), 1.0, "WRONG"), (1.5, 0, 1.11, "LARGER"), (1.5, 0, None, "ok"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("calls", [0, 3])
def test_verdict_of_a_frozen_one(ratio: float, difference: float, peak: float | None, verdict: str, calls: int) -> None:
    """Against the unfrozen program, however much slower stock is; also where nothing but XLA's own work is cut off."""
    result = Result(
        "frozen", "x", {STOCK: 9.0, SETTLED: ratio, FROZEN: 1.0}, {FROZEN: ratio}, {SETTLED: 2, FROZEN: calls}
    )
    result.difference, result.allowed = difference, 1e-4
    result.peak = {SETTLED: 1_000_000, FROZEN: 2_000_000, DONATED: round(1_000_000 * peak)} if peak is not None else {}
    assert result.verdict == verdict
    assert result.gain == ratio - 1
    assert f"frozen: {ratio:.3f}x, {calls} calls; unfrozen 2 calls; stock 9000.000 ms" in result.line
    said = summary("frozen", [result])
    assert f"1 of 1 frozen; worst {ratio:.3f}x (x)" in said
    assert ("slower, larger or wrong: 0" in said) == (verdict == "ok")


def test_a_frozen_one_of_which_nothing_is_prepared_is_unchanged() -> None:
    seconds, nothing = {STOCK: 1.0, SETTLED: 0.9, FROZEN: 1.0}, {SETTLED: 0, FROZEN: 0}
    result = Result("frozen", "x", seconds, {FROZEN: 0.9}, nothing, is_unchanged=True)
    assert result.verdict == "unchanged"
    assert "0 of 1 frozen; slower, larger or wrong: 0" in summary("frozen", [result])


def test_what_of_a_model_is_frozen() -> None:
    pytest.importorskip("flax")
    assert [name for name in ("bert", "bert-gradient", "gaussian-process") if is_inference(name)] == ["bert"]
    layer = model("bert-layer")
    assert len(layer.weights) == 1
    assert [array.shape for array in layer.inputs] == [(1, 128, 768), (1, 128)]


def test_a_model_may_be_as_far_off_as_its_own_rounding_moves_it() -> None:
    import jax.numpy as jnp

    x = jnp.linspace(1, 2, 7)
    steady = BenchProgram("steady", lambda w, x: w * x, (x, x), 1)
    shaky = BenchProgram("shaky", lambda w, x: jnp.sin(w * 1e4) * x, (x, x), 1)
    for program in (steady, shaky):
        assert difference(program, x, x * (1 + 1e-6))[1] == FLOAT32
    assert difference(steady, x, x * 1.01)[1] == FLOAT32
    assert FLOAT32 < difference(shaky, x, x * 1.01)[1] < 1
    off, allowed = difference(shaky, x, x * jnp.nan)
    assert not off <= allowed


def test_a_model_frozen_is_the_model(tmp_path: Path) -> None:
    """Not how fast it is: for that the machine has to be idle."""
    output = tmp_path / "frozen.json"
    command = [sys.executable, "-m", "bench.never_slower", "frozen", "--models", "two-layers", "bert-gradient"]
    command += ["--seconds", "0.1", "--output", str(output)]
    done = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False, timeout=600
    )
    (result,) = (Result(**values) for values in _results(output))
    assert not result.problem, result.problem
    assert set(result.seconds) == {STOCK, SETTLED, FROZEN}, done.stdout
    assert result.difference <= result.allowed == 1e-4
    assert set(result.peak) == {SETTLED, FROZEN, DONATED}


def _results(output: Path) -> list[dict[str, Any]]:
    results = json.loads(output.read_text())["results"]
    for values in results:
        values.pop("verdict")
    return results


def test_nothing_measured_is_said() -> None:
    assert "not measured: y" in summary("models", [Result("models", "y", problem="not done in 3 s")])


def test_the_same_regions_every_time() -> None:
    first, second = ([p.name for p in random_regions(12, seed=5)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 12


def test_tiny_programs_are_left_as_they_are_and_resumed(tmp_path: Path) -> None:
    """Not how fast they are: for that the machine has to be idle."""
    output = tmp_path / "tiny.json"
    command = [sys.executable, "-m", "bench.never_slower", "tiny", "--seconds", "0.1", "--output", str(output)]
    subprocess.run(command, cwd=ROOT, env=clean_environment(), check=False, timeout=300)
    results = json.loads(output.read_text())["results"]
    assert len(results) == 4
    assert all(result["is_unchanged"] and result["calls"] == {SETTLED: 0} for result in results)
    # Nothing is left to do, and what is known still decides.
    results[0]["calls"], results[0]["is_unchanged"] = {SETTLED: 1}, False
    document = json.loads(output.read_text()) | {"results": results}
    output.write_text(json.dumps(document))
    done = subprocess.run(
        [*command, "--resume"], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "1 of 4 dispatched" in done.stdout
    assert "later compiles:" not in done.stdout
