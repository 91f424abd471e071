"""What `explain` says of a function of `hlo_dispatch.jit`: which arguments are frozen, can be, or why none."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from immediate import jitted

import hlo_dispatch

X = jnp.ones((3, 32))


def predict(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["w"] + p["b"])


def weights() -> dict[str, Any]:
    return {"w": jnp.ones((32, 16)), "b": jnp.zeros(16)}


def test_which_can_be_frozen_and_then_are() -> None:
    function, p = jitted(predict), weights()
    report = hlo_dispatch.explain(function, p, np.asarray(X))
    sentence = "predict: 2 arguments can be frozen ([0]['b'], [0]['w']), 2,112 bytes, where calls pass the same objects"
    assert report.frozen_arguments == (f"{sentence} again",)
    assert sentence in " ".join(str(report).split())  # lines are as wide as the terminal
    assert not function.sites, "nothing was called"
    for number in range(4):
        function(p, X + number)
    (sentence,) = hlo_dispatch.explain(function, p, X).frozen_arguments
    assert sentence.startswith("predict: 2 arguments frozen ([0]['b'], [0]['w'])")
    assert hlo_dispatch.explain(jax.jit(predict), p, X).frozen_arguments == ()


@pytest.mark.parametrize(
    ("options", "why"),
    [({"inline": True}, "never frozen: it is jitted with inline"), ({"donate_argnums": 0}, "384 bytes of the 1,000")],
)
def test_why_none_is(options: dict[str, Any], why: str) -> None:
    (sentence,) = hlo_dispatch.explain(jitted(predict, **options), weights(), X).frozen_arguments
    assert why in sentence


def test_what_has_side_effects_is_never_frozen() -> None:
    def printing(p: Any, x: Any) -> Any:
        jax.debug.print("{}", x[0, 0])
        return predict(p, x)

    (sentence,) = hlo_dispatch.explain(jitted(printing), weights(), X).frozen_arguments
    assert sentence.startswith("printing: never frozen: it has side effects")


def test_what_is_donated_and_comes_back_can_be_frozen() -> None:
    function = jitted(lambda p, x: (p, predict(p, x)), donate_argnums=0)
    (sentence,) = hlo_dispatch.explain(function, weights(), np.asarray(X)).frozen_arguments
    assert "2 arguments can be frozen" in sentence
