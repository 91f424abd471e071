"""The plug-in as a user meets it: installing, failing, threads, saved executables, and doing nothing."""

from __future__ import annotations

import pickle
import re
import subprocess
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch.errors import PolicyError
from hlo_dispatch.jax_plugin import hook
from hlo_dispatch.jax_plugin.failure_log import FailureLog
from hlo_dispatch.pipeline import Pipeline
from side_by_side import assert_agree, assert_close, run_both
from warm import run_python

X, W = np.ones((8, 16), "float32") / 3, np.ones((16, 32), "float32") / 7


@pytest.fixture(autouse=True)
def _uninstalled():
    yield
    hlo_dispatch.uninstall()


def compiled_text(program, *arguments) -> str:
    return jax.jit(lambda *inputs: program(*inputs)).lower(*arguments).compile().as_text()


def dispatched(program=lambda x, w: jnp.tanh(x @ w), arguments=(X, W)) -> bool:
    return "hlo_dispatch." in compiled_text(program, *arguments)


# --- what it does -------------------------------------------------------------------------------------------


def conv_relu(lhs, rhs):
    out = jax.lax.conv_with_general_padding(lhs, rhs, (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
    return jax.nn.relu(out)


def test_convolution_and_relu_are_one_call() -> None:
    random = np.random.default_rng()
    images, window = random.standard_normal((2, 1, 9, 9)), random.standard_normal((1, 1, 4, 4))
    both = run_both(conv_relu, images.astype("float32"), window.astype("float32"))
    assert both.calls == both.text.count(" custom-call(") == 1
    assert re.search(r'post_op_0 = \{kind = "eltwise", algorithm = "relu"', both.text)
    assert "maximum(" not in both.text
    assert both.dispatched[0].shape == (2, 1, 6, 6)
    assert_agree(both)


def test_nothing_to_do_is_nothing_done() -> None:
    before = hlo_dispatch.statistics()
    both = run_both(lambda x: jnp.abs(jnp.sqrt(x)), np.linspace(0, 9, 1024, dtype="float32"), as_users_have_it=True)
    after = hlo_dispatch.statistics()
    assert (after.rewritten, after.failures) == (before.rewritten, before.failures)
    assert after.modules > before.modules
    assert both.text.count(" fusion(") == 1
    np.testing.assert_array_equal(both.stock[0], both.dispatched[0])


# --- putting it in and taking it out ------------------------------------------------------------------------


def test_install_twice_runs_once_and_uninstall_twice_is_fine() -> None:
    assert not hlo_dispatch.installed()
    hlo_dispatch.install(policy="always")
    hlo_dispatch.install(policy="always")
    before = hlo_dispatch.statistics().modules
    assert dispatched()
    assert hlo_dispatch.statistics().modules == before + 1
    hlo_dispatch.uninstall()
    hlo_dispatch.uninstall()
    assert not hlo_dispatch.installed()
    assert not dispatched()


def test_takes_effect_on_what_is_compiled_already() -> None:
    program = jax.jit(lambda x, w: jnp.tanh(x @ w))
    program(X, W)
    before = hlo_dispatch.statistics().rewritten
    hlo_dispatch.install(policy="always")
    program(X, W)
    assert hlo_dispatch.statistics().rewritten == before + 1


def test_enabled_nests() -> None:
    with hlo_dispatch.enabled(policy="always"):
        assert dispatched()
        with hlo_dispatch.enabled(policy="never"):
            assert not dispatched()
        assert hlo_dispatch.installed()
        assert dispatched()
    assert not hlo_dispatch.installed()
    assert not dispatched()


def test_enabled_inside_install_leaves_it_installed() -> None:
    hlo_dispatch.install(policy="always")
    with pytest.raises(ZeroDivisionError), hlo_dispatch.enabled(policy="never"):
        raise ZeroDivisionError
    assert dispatched()


@pytest.mark.parametrize("wrong", [{"policy": "sometimes"}, {"platforms": "gpu"}])
def test_wrong_words_list_the_right_ones(wrong) -> None:
    hlo_dispatch.install(policy="always")
    with pytest.raises(PolicyError, match=r"valid .* are: "):
        hlo_dispatch.install(**wrong)
    assert dispatched(), "what was installed before stays"


# --- when something of ours fails ---------------------------------------------------------------------------


def fail(*_, **__):
    raise AssertionError("deliberate")


def test_failure_means_stock_and_one_warning(monkeypatch, caplog) -> None:
    monkeypatch.delenv("HLO_DISPATCH_STRICT")
    monkeypatch.setattr(hook, "failure_log", FailureLog())
    monkeypatch.setattr(Pipeline, "run", fail)
    before = hlo_dispatch.statistics().failures
    with hlo_dispatch.enabled(policy="always"):
        for scale in (1.0, 2.0):
            program = jax.jit(lambda x, w, scale=scale: jnp.tanh(x @ w) * scale)
            assert_close(np.asarray(program(X, W)), np.tanh(X @ W) * scale)
    assert hlo_dispatch.statistics().failures == before + 2
    (record,) = [record for record in caplog.records if record.name == "hlo_dispatch"]
    assert "AssertionError: deliberate" in record.getMessage()
    kept = Path(re.search(r"(/\S+\.pb)", record.getMessage())[1])
    try:
        assert hlo_dispatch.rewrite.__name__ == "rewrite"
        monkeypatch.undo()
        assert hlo_dispatch.rewrite(kept.read_bytes(), policy="always").proto is not None
    finally:
        kept.unlink()


def test_strict_raises(monkeypatch) -> None:
    monkeypatch.setattr(Pipeline, "run", fail)
    with hlo_dispatch.enabled(policy="always"), pytest.raises(Exception, match="deliberate"):
        compiled_text(lambda x, w: x @ w, X, W)


# --- threads ------------------------------------------------------------------------------------------------


def test_threads_compile_and_run_side_by_side() -> None:
    sizes = (5, 16, 33, 64)
    random = np.random.default_rng(1)
    arguments = [random.standard_normal((2, n, n)).astype("float32") for n in sizes]
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            x, w = arguments[number % len(sizes)]
            program = jax.jit(lambda x, w: jnp.tanh(x @ w + number))
            for _ in range(20):
                assert_close(np.asarray(program(x, w)), np.tanh(x @ w + number), 1e-4)
        except BaseException as problem:
            problems.append(problem)

    with hlo_dispatch.enabled(policy="always"):
        before = hlo_dispatch.statistics()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
    assert hlo_dispatch.statistics().rewritten == before.rewritten + 8


# --- other processes ----------------------------------------------------------------------------------------

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
x, w = np.ones((8, 16), "float32") / 3, np.ones((16, 32), "float32") / 7
text = jax.jit(lambda x, w: jnp.tanh(x @ w)).lower(x, w).compile().as_text()
print(text.count('custom_call_target="hlo_dispatch.'))
"""


def run(code: str, *arguments: str | Path, **environment: str | Path) -> subprocess.CompletedProcess:
    clean = clean_environment()
    changed = {name: str(value) for name, value in environment.items()}
    return run_python(code, *arguments, environment=clean | changed)


def test_the_entry_point(tmp_path) -> None:
    closed, opened = run(PROGRAM), run(PROGRAM, HLO_DISPATCH="1", HLO_DISPATCH_POLICY="always")
    assert closed.stdout.strip() == "0", closed.stderr
    assert opened.stdout.strip() == "1", opened.stderr
    table = tmp_path / "mine.yaml"
    table.write_text("version: 1\nactivations: {twice: {formula: 2 * x, onednn: {algorithm: nonsense}}}\n")
    wrong = run(PROGRAM, HLO_DISPATCH="1", HLO_DISPATCH_TABLES=table)
    assert f"{table}:2:" in wrong.stderr, "a wrong table is said so"
    assert wrong.stdout.strip() in ("", "0")


def test_saved_executable_runs_in_another_process(tmp_path) -> None:
    with hlo_dispatch.enabled(policy="always"):
        compiled = jax.jit(lambda x, w: jnp.tanh(x @ w)).lower(X, W).compile()
    saved = tmp_path / "executable"
    saved.write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
    code = """
import pickle, sys
import jax, numpy as np
from jax.experimental import serialize_executable
if sys.argv[2] == "installed":
    import hlo_dispatch
    hlo_dispatch.install()
program = serialize_executable.deserialize_and_load(*pickle.load(open(sys.argv[1], "rb")))
x, w = np.ones((8, 16), "float32") / 3, np.ones((16, 32), "float32") / 7
print(float(np.abs(program(x, w) - np.tanh(x @ w)).max()) < 1e-6)
"""
    there = run(code, saved, "installed")
    assert there.stdout.strip() == "True", there.stderr
    elsewhere = run(code, saved, "not")
    assert elsewhere.returncode == 1, "a crash, or a result from nowhere"
    assert "hlo_dispatch.onednn.matmul" in elsewhere.stderr.splitlines()[-1] or "hlo_dispatch" in elsewhere.stderr


def test_compilation_cache_tells_stock_from_dispatched(tmp_path) -> None:
    code = """
import sys, jax, jax.numpy as jnp, numpy as np, hlo_dispatch
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
x, w = np.ones((8, 16), "float32") / 3, np.ones((16, 32), "float32") / 7
for turn in sys.argv[2:]:
    hlo_dispatch.install(policy="always") if turn == "in" else hlo_dispatch.uninstall()
    compiled = jax.jit(lambda x, w: jnp.tanh(x @ w)).lower(x, w).compile()
    assert np.abs(compiled(x, w) - np.tanh(x @ w)).max() < 1e-6
    print(compiled.as_text().count('custom_call_target="hlo_dispatch.'), end=" ")
"""
    assert (first := run(code, tmp_path, "in", "out", "in")).stdout.split() == ["1", "0", "1"], first.stderr
    assert (second := run(code, tmp_path, "out", "in")).stdout.split() == ["0", "1"], second.stderr


def test_it_comes_and_goes_while_others_compile() -> None:
    """XLA calls what was in its list of passes when it began, so nothing is ever taken out of that."""
    code = """
import threading, jax, jax.numpy as jnp, numpy as np, hlo_dispatch
over, wrong = threading.Event(), []
x = np.linspace(-1, 1, 15, dtype="float32").reshape(3, 5)
def compiling(seed):
    number = seed
    while not over.is_set():
        number += 1
        got = jax.jit(lambda x: jnp.tanh(x @ x.T + number)).lower(x).compile()(x)
        if not np.allclose(got, np.tanh(x @ x.T + number), atol=1e-5):
            wrong.append(number)
threads = [threading.Thread(target=compiling, args=(seed,)) for seed in (0, 1000, 2000)]
[thread.start() for thread in threads]
for _ in range(20):
    with hlo_dispatch.enabled(policy="always"):
        jax.jit(lambda x: x @ x.T)(x).block_until_ready()
over.set()
[thread.join() for thread in threads]
modules = hlo_dispatch.statistics().modules
jax.jit(lambda x: x @ x.T)(x).block_until_ready()
print(wrong, modules >= 20, hlo_dispatch.statistics().modules == modules, hlo_dispatch.installed())
"""
    ended = run(code)
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-2000:])
    assert ended.stdout.split("\n")[0] == "[] True True False", ended.stdout
