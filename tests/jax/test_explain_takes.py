"""`explain` and `tune` take what people have: however a function was jitted, lowered, compiled or called before."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.jax_plugin.lowering import compile_afresh
from hlo_dispatch.report import Report
from warm import run_python

X, W = np.ones((32, 64), "float32") / 3, np.ones((64, 48), "float32") / 7
ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}


def layer(x, w, times, activation="tanh", *, scale=1.0):
    for _ in range(times):
        x = ACTIVATIONS[activation](x @ w)
        w = w.T
    return x * scale


@pytest.fixture(autouse=True)
def _always():
    with hlo_dispatch.enabled(policy="always"):
        yield


def formulas(report: Report) -> list[str]:
    return [region.formula for region in report.dispatched]


TWICE = ["relu(x @ w)", "relu(x @ w)"]


def test_static_arguments_by_position() -> None:
    jitted = jax.jit(layer, static_argnums=(2, 3))
    assert formulas(hlo_dispatch.explain(jitted, X, W, 2, "relu")) == TWICE


def test_static_arguments_by_name() -> None:
    jitted = jax.jit(layer, static_argnames=("times", "activation"))
    assert formulas(hlo_dispatch.explain(jitted, X, W, times=2, activation="relu")) == TWICE
    assert len(formulas(hlo_dispatch.explain(jitted, X, W, times=1, scale=2.0))) == 1


def test_a_partial_and_a_method_of_what_is_jitted() -> None:
    class Model:
        @functools.partial(jax.jit, static_argnums=(0, 2))
        def run(self, x, times):
            return layer(x, W, times, "relu")

    model = Model()
    assert formulas(hlo_dispatch.explain(model.run, X, 2)) == TWICE
    jitted = jax.jit(layer, static_argnames=("times", "activation"))
    assert formulas(hlo_dispatch.explain(functools.partial(jitted, activation="relu"), X, W, times=2)) == TWICE


def test_a_plain_function_with_a_word_among_its_arguments() -> None:
    report = hlo_dispatch.explain(lambda x, w, name: layer(x, w, 2, name), X, W, "relu")
    assert formulas(report) == TWICE


def test_what_was_called_before_is_compiled_once_more() -> None:
    """And what JAX has compiled stays as it is."""
    jitted = jax.jit(layer, static_argnums=2)
    jitted(X, W, 1)
    jitted.lower(X, W, 1).compile()
    before = hlo_dispatch.statistics().modules
    for _ in range(2):
        assert formulas(hlo_dispatch.explain(jitted, X, W, 1)) == ["tanh(x @ w)"]
    assert hlo_dispatch.statistics().modules == before + 2
    jitted(X, W, 1)
    assert hlo_dispatch.statistics().modules == before + 2


def test_donated_arguments_are_not_taken() -> None:
    jitted = jax.jit(lambda x, w: jnp.tanh(x @ w) + x, donate_argnums=0)
    x, w = jnp.asarray(X @ W @ W.T), jnp.eye(64)
    assert len(formulas(hlo_dispatch.explain(jitted, x, w))) == 1
    alias = Module.from_bytes(optimized(jitted, x, w)).proto.input_output_alias
    assert alias.ByteSize(), "nor is it forgotten that they may be"
    assert not x.is_deleted()


def test_a_lowering() -> None:
    jitted = jax.jit(layer, static_argnums=(2, 3))
    lowered = jitted.lower(X, W, 2, "relu")
    for _ in range(2):
        assert formulas(hlo_dispatch.explain(lowered)) == TWICE
    assert formulas(hlo_dispatch.explain(jitted.trace(X, W, 2, "relu"))) == TWICE
    with pytest.raises(HloDispatchError, match="arguments already"):
        hlo_dispatch.explain(lowered, X, W)


def test_what_stock_compiled() -> None:
    with hlo_dispatch.enabled(policy="never"):
        compiled = jax.jit(layer, static_argnums=(2, 3)).lower(X, W, 2, "relu").compile()
    report = hlo_dispatch.explain(compiled)
    assert formulas(report) == TWICE
    assert report.before is not None
    assert report.after is not None


def test_what_was_dispatched_already_is_said() -> None:
    compiled = jax.jit(layer, static_argnums=(2, 3)).lower(X, W, 2, "relu").compile()
    for ask in (hlo_dispatch.explain, hlo_dispatch.tune):
        with pytest.raises(HloDispatchError, match=r"was dispatched when it was compiled.*Lowered"):
            ask(compiled)
    with pytest.raises(HloDispatchError, match="arguments already"):
        hlo_dispatch.explain(compiled, X, W)


@pytest.mark.parametrize("thing", [3, "tanh", X])
def test_what_is_no_function_is_said(thing: object) -> None:
    with pytest.raises(HloDispatchError, match="not something to compile; this takes a function"):
        hlo_dispatch.explain(thing)  # pyright: ignore[reportArgumentType]


def test_what_another_thread_compiles_is_not_mistaken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it is compiled in between, which is the same."""

    def with_another(lowered) -> None:
        jax.jit(lambda x, w: layer(x, w, 6)).lower(X, W).compile()
        compile_afresh(lowered)

    monkeypatch.setattr("hlo_dispatch.jax_plugin.explaining.compile_afresh", with_another)
    assert formulas(hlo_dispatch.explain(jax.jit(layer, static_argnums=2), X, W, 1)) == ["tanh(x @ w)"]
    module = Module.from_bytes(optimized(jax.jit(layer, static_argnums=2), X, W, 1))
    assert module.name == "jit_layer"


# --- other packages' ways to jit -------------------------------------------------------------------------------


def test_equinox() -> None:
    eqx = pytest.importorskip("equinox")
    model = eqx.nn.MLP(64, 48, 128, 1, key=jax.random.key(0))

    @eqx.filter_jit
    def batched(model, x, name, *, scale):
        return jax.vmap(model)(x) * (scale if name == "scaled" else 0.0)

    report = hlo_dispatch.explain(batched, model, X, "scaled", scale=2.0)
    assert len(formulas(report)) == 2, report
    assert report.before is not None
    assert len(formulas(hlo_dispatch.explain(batched.lower(model, X, "scaled", scale=2.0)))) == 2


def test_flax_nnx() -> None:
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Linear(64, 48, rngs=nnx.Rngs(0))

    @functools.partial(nnx.jit, static_argnames="name")
    def apply(model, x, name):
        return ACTIVATIONS[name](model(x))

    report = hlo_dispatch.explain(apply, model, X, name="relu")
    assert formulas(report) == ["relu(x @ w + b)"]
    assert formulas(hlo_dispatch.explain(apply.lower(model, X, name="relu"))) == ["relu(x @ w + b)"]
    apply(model, X, name="relu")


# --- tune ------------------------------------------------------------------------------------------------------


def test_tune_takes_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    jitted = jax.jit(layer, static_argnames=("times", "activation"))
    jitted(X, W, times=1, activation="relu")
    for tuned in (
        hlo_dispatch.tune(jitted, X, W, times=1, activation="relu"),
        hlo_dispatch.tune(jitted.lower(X, W, 1, "relu")),
    ):
        assert [region.formula for region in tuned.report.candidates] == ["relu(x @ w)"]


PERSISTENT = """
import os, sys
import jax, numpy as np, hlo_dispatch
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hlo_dispatch.install(policy="always")
x = np.ones((64, 64), "float32")
f = jax.jit(lambda x: jax.numpy.tanh(x @ x))
f(x)
kept = sorted(os.listdir(sys.argv[1]))
report = hlo_dispatch.explain(f, x)
print([region.formula for region in report.dispatched], kept == sorted(os.listdir(sys.argv[1])))
"""


def test_the_persistent_cache_neither_answers_nor_grows(tmp_path: Path) -> None:
    for _ in range(2):
        done = run_python(PERSISTENT, tmp_path, environment=clean_environment())
        assert done.stdout == "['tanh(x @ w)'] True\n", done.stderr
