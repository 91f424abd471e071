"""Cached stock executables of tests are never mistaken for ours, nor ours for stock's (tests/compiled_once.py)."""

from __future__ import annotations

import jax
import numpy as np
from jax.extend import xla

import hlo_dispatch

X = np.ones((64, 64), "float32")


def compiled(number: float = 3.0):
    """One program; its number is in its text."""
    return jax.jit(lambda x: jax.nn.gelu(x @ x) * number).lower(X).compile()


def is_dispatched(executable) -> bool:
    return "hlo_dispatch." in executable.as_text()


def test_stocks_is_kept_and_the_pass_is_asked_every_time() -> None:
    stock = compiled()
    seen = hlo_dispatch.statistics().modules
    for turn in range(1, 3):
        with hlo_dispatch.enabled(policy="always"):
            assert is_dispatched(compiled())
        assert hlo_dispatch.statistics().modules == seen + turn
        again = compiled()
        assert again.runtime_executable() is stock.runtime_executable()
    assert not is_dispatched(again)


def test_another_number_is_another_program() -> None:
    assert compiled(3.0).runtime_executable() is not compiled(4.0).runtime_executable()


def test_every_callback_in_the_hook_gets_every_module() -> None:
    compiled(5.0)
    shown: list[bytes] = []
    xla.register_hlo_module_transformation(lambda module: shown.append(module), name="listener", platforms="cpu")
    try:
        heard = compiled(5.0), compiled(5.0)
    finally:
        xla.clear_hlo_module_transformation("listener", platforms="cpu")
    assert len(shown) == 2
    assert heard[0].runtime_executable() is not heard[1].runtime_executable()
