"""Callbacks that JAX calls never fail the user's compile, whatever fails inside."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin import entry_point, hook, record
from hlo_dispatch.jax_plugin.failure_log import FailureLog
from hlo_dispatch.pipeline import Pipeline
from side_by_side import assert_close

X, W = np.ones((8, 16), "float32") / 3, np.ones((16, 32), "float32") / 7


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch):
    monkeypatch.delenv("HLO_DISPATCH_STRICT")
    monkeypatch.setattr(hook, "failure_log", FailureLog())
    yield
    hlo_dispatch.uninstall()


def fail(*_, **__):
    raise ValueError("deliberate")


@pytest.mark.parametrize(
    "name", ["hlo_dispatch_stand_in_x", "hlo_dispatch_stand_in_1_2_end", "a_hlo_dispatch_stand_in_"]
)
def test_a_function_with_the_name_of_a_placeholder(name) -> None:
    def program(x, w):
        return jnp.tanh(x @ w)

    program.__name__ = name
    with hlo_dispatch.enabled(policy="always"):
        compiled = jax.jit(program).lower(X, W).compile()
    assert_close(np.asarray(compiled(X, W)), np.tanh(X @ W))
    assert "hlo_dispatch.onednn" in compiled.as_text(), "it is a program like any other"
    executable.install_substitution_hook()
    assert_close(np.asarray(jax.jit(program)(X, W)), np.tanh(X @ W))


def test_jaxs_hook_is_left_as_it_is_once_it_is_ours(monkeypatch) -> None:
    """XLA's list of callbacks may be read by a thread that compiles while it changes: so it changes once."""
    from jax.extend import xla

    hlo_dispatch.uninstall()
    executable.install_substitution_hook()
    for name in ("register_hlo_module_transformation", "clear_hlo_module_transformation"):
        monkeypatch.setattr(xla, name, fail)
    module = jax.jit(jnp.tanh).lower(X).compile().runtime_executable().hlo_modules()[0]
    for _ in range(2):
        ran = executable.Executable(Module.from_bytes(module.as_serialized_hlo_module_proto()))
        assert_close(np.asarray(ran(executable.to_device([X]))[0]), np.tanh(X))


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (executable, "substitution"),
        (record.Record, "capture"),
        (record.Record, "keep"),
        (Pipeline, "run"),
        (hook.registration, "register"),
        (hook.measured_pipeline, "with_measurements"),
        (FailureLog, "warn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_whatever_fails_in_the_hook_leaves_stock(monkeypatch, place, name) -> None:
    hlo_dispatch.install(policy="always")
    if name == "warn":
        monkeypatch.setattr(Pipeline, "run", fail)
    monkeypatch.setattr(place, name, fail)
    assert_close(np.asarray(jax.jit(lambda x, w: jnp.tanh(x @ w))(X, W)), np.tanh(X @ W))


class Broken(logging.Handler):
    emit = fail


def test_a_log_handler_that_raises(monkeypatch) -> None:
    hlo_dispatch.install(policy="always")
    monkeypatch.setattr(Pipeline, "run", fail)
    logger, handler = logging.getLogger("hlo_dispatch"), Broken()
    logger.addHandler(handler)
    try:
        assert_close(np.asarray(jax.jit(lambda x, w: jnp.tanh(x @ w))(X, W)), np.tanh(X @ W))
    finally:
        logger.removeHandler(handler)


@pytest.fixture
def _persistent_cache(tmp_path):
    from jax.experimental.compilation_cache import compilation_cache

    names = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in names.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("_persistent_cache")
@pytest.mark.parametrize("name", ["registration", "measuring"])
def test_a_key_that_cannot_be_made(monkeypatch, tmp_path, name) -> None:
    hlo_dispatch.install(policy="always")
    places = {
        "registration": (hook.registration, "register"),
        "measuring": (hook.measured_pipeline, "with_measurements"),
    }
    place, function = places[name]
    monkeypatch.setattr(place, function, fail)
    program = lambda x, w: jnp.tanh(x @ w)  # noqa: E731
    assert_close(np.asarray(jax.jit(program)(X, W)), np.tanh(X @ W))
    monkeypatch.undo()
    jax.clear_caches()
    assert "hlo_dispatch.onednn" in jax.jit(program).lower(X, W).compile().as_text(), "what was made then is not found"


def test_the_entry_point_says_what_failed(monkeypatch, caplog) -> None:
    monkeypatch.setenv("HLO_DISPATCH", "1")
    monkeypatch.setattr(hook, "install_from_environment", fail)
    entry_point.initialize.__wrapped__()
    (record,) = caplog.records
    assert "ValueError: deliberate" in record.getMessage()
