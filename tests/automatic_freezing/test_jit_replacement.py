"""`install(jit=True)` puts `hlo_dispatch.jit` in `jax.jit`'s place, and `uninstall` JAX's back."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import jax
import pytest

import hlo_dispatch
from hlo_dispatch.automatic_freezing.jit import JittedFunction
from hlo_dispatch.jax_plugin.jit_replacement import replace_jit, restore_jit


def double(x: Any) -> Any:
    return 2 * x


def test_replaced_and_restored() -> None:
    original = jax.jit
    try:
        replace_jit()
        replaced = jax.jit
        replace_jit()
        assert jax.jit is replaced
        made = [jax.jit(double), functools.partial(jax.jit, static_argnums=())(double), jax.jit()(double)]
        assert [type(function) for function in made] == [JittedFunction] * 3
        assert [function(2.0) for function in made] == [4.0] * 3
        assert pickle.loads(pickle.dumps(made[0]))(3.0) == 6.0
        assert pickle.loads(pickle.dumps(jax.jit)) is jax.jit
        for wrong in ({"no_option": 1}, {"fun": double}):  # what decorates is checked, too
            with pytest.raises(TypeError):
                jax.jit(double, **wrong)
            with pytest.raises(TypeError):
                jax.jit(**wrong)
        # As a module of JAX's own would.
        source = "def jitted(function): return jax.jit(function)"
        theirs: dict[str, Any] = {"__name__": "jax.experimental.mine", "jax": jax}
        exec(source, theirs)
        assert type(theirs["jitted"](double)) is type(original(double))
    finally:
        restore_jit()
    assert jax.jit is original
    restore_jit()
    assert jax.jit is original


def test_install() -> None:
    original = jax.jit
    before = hlo_dispatch.installed()
    try:
        hlo_dispatch.install(jit=True)
        assert jax.jit is not original
    finally:
        hlo_dispatch.uninstall()
        assert jax.jit is original
        if before:
            hlo_dispatch.install()
