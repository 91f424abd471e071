"""Validation of kernels: one that computes something else than its table says is refused."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from measured_programs import B, W, X, calls, dense, regions_in

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.jax_plugin.tuning import tune_module
from hlo_dispatch.pattern import shipped_tables
from hlo_dispatch.selection.measurements import STOCK

pytestmark = pytest.mark.usefixtures("_own_store")

COMMAND = Path(sys.executable).with_name("hlo-dispatch")
WRONG = """
import sys
import jax, numpy as np, hlo_dispatch

hlo_dispatch.install(tables=["mine.yaml"])

def block(x, scale, residual):
    return x * jax.nn.sigmoid(1.5 * x) * scale + residual

random = np.random.default_rng(3)
x, scale, residual = (random.standard_normal(s).astype("float32") for s in ((40, 64), (64,), (40, 64)))
for turn in range(2):
    compiled = jax.jit(lambda *a: block(*a)).lower(x, scale, residual).compile()
    (region,) = hlo_dispatch.reports()[-1].regions
    print(compiled.as_text().count("custom_call_target"), region.refusal.code)
wanted = x / (1 + np.exp(-1.5 * x)) * scale + residual
assert np.abs(np.asarray(compiled(x, scale, residual)) - wanted).max() < 1e-5
if len(sys.argv) > 1:
    from hlo_dispatch.jax_plugin.explaining import optimized
    open(sys.argv[1], "wb").write(optimized(block, x, scale, residual))
"""


@pytest.fixture
def wrong_kernel(tmp_path: Path) -> Path:
    """The example of patterns/examples, its handler computing something else than its table says."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to build a user's kernel with")
    examples = shipped_tables()[0].parent / "examples"
    folder = tmp_path / "example"
    folder.mkdir()
    shutil.copy(examples / "mine.yaml", folder)
    source = (examples / "scaled_silu.cc").read_text()
    planted = source.replace("+ add[row", "- add[row")
    assert planted != source
    (folder / "scaled_silu.cc").write_text(planted)
    (command,) = re.findall(r"```bash\n(g\+\+ .*?)```", (examples / "README.md").read_text(), re.DOTALL)
    environment = clean_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    subprocess.run(["bash", "-c", command], cwd=folder, check=True, timeout=300, env=environment)
    return folder


@pytest.mark.any_processor
def test_a_wrong_kernel_is_refused_with_a_reproducer(wrong_kernel: Path, store: Store) -> None:
    environment = clean_environment(HLO_DISPATCH_CACHE_DIR=str(store.directory), HLO_DISPATCH_MEASURE_SECONDS="60")
    command = [sys.executable, "-c", WRONG, str(wrong_kernel / "block.pb")]
    done = subprocess.run(
        command, cwd=wrong_kernel, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0 wrong-result", "0 wrong-result"], done.stderr
    assert done.stderr.count("its result is wrong") == 1, "said once"
    (entry,) = store.entries()
    (sentence,) = entry.measured.refused.values()
    folder = Path(sentence.rpartition("reproducer: ")[2])
    assert sorted(file.name for file in folder.iterdir()) == [
        "dispatched.hlo", "dispatched.pb", "inputs.json", "stock.hlo", "stock.pb"
    ]  # fmt: skip
    assert 'custom_call_target="mine.scaled_silu"' in (folder / "dispatched.hlo").read_text()
    # On its own, with nothing but the module and the table.
    store.remove()
    checked = subprocess.run(
        [COMMAND, "tune", "--validate-only", "--tables", "mine.yaml", "block.pb"],
        cwd=wrong_kernel, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert checked.returncode == 1, checked.stderr
    assert "wrong" in checked.stdout
    assert [bool(entry.measured.refused) for entry in store.entries()] == [True]


def test_right_results_are_said_to_be_right(store: Store, module_file: Path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        tuned = tune_module(module_file.read_bytes(), validate_only=True)
    assert tuned.regions
    assert all(not region.refused and region.differences and not region.seconds for region in tuned.regions)
    assert store.entries() == []
    assert caplog.records == []


@pytest.mark.usefixtures("_any_answer")
def test_tune_a_function(store: Store) -> None:
    hlo_dispatch.install()
    tuned = hlo_dispatch.tune(dense, X, W, B)
    (region,) = tuned.regions
    assert {"stock", "whole", "bare", "one step less"} <= set(region.seconds)
    (entry,) = regions_in(store)
    assert entry.measured.thorough
    (whole,) = [one.measured for one in store.entries() if one.measured.kernel == whole_program_trial.ALL_KERNELS]
    assert tuned.to_dict()["regions"][0]["formula"] == "gelu_tanh(x @ w + b)"
    before = measured_pipeline.tally.measured
    executable = jax.jit(lambda *a: dense(*a)).lower(X, W, B).compile()
    assert measured_pipeline.tally.measured == before
    assert calls(executable) == (whole.chosen != STOCK)
