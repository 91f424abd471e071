"""Arguments that stay the same, and are not worth freezing: calls go on as if nothing was looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from immediate import SERVICES, Later, jitted

from hlo_dispatch.automatic_freezing import overview

WIDTH = 16


def weights(scale: float) -> dict[str, Any]:
    w = scale * jnp.linspace(-1, 1, 2 * WIDTH * WIDTH, dtype="float32").reshape(2 * WIDTH, WIDTH)
    return {"w": w, "b": scale * jnp.arange(WIDTH, dtype="float32")}


def layer(p: dict[str, Any], x: Any) -> Any:
    return jnp.tanh(x @ (p["w"] + p["w"]) + p["b"])


def check(function: Any, p: dict[str, Any], x: Any) -> None:
    wide = [np.asarray(value, "float64") for value in (x, p["w"], p["b"])]
    np.testing.assert_allclose(function(p, x), np.tanh(2 * wide[0] @ wide[1] + wide[2]), rtol=2e-5, atol=2e-5)


def trained_on(x: Any, later: Later) -> Any:
    """A function that was called with one batch and with other weights each time."""
    function = jitted(layer, replace(SERVICES, samples=1, compile=later))
    for number in range(6):
        check(function, weights(number), x)
        later.run()
    return function


def test_training_on_one_batch_is_not_watched() -> None:
    x, later = jnp.cos(jnp.arange(2.0 * WIDTH * WIDTH)).reshape(WIDTH, 2 * WIDTH), Later()
    function = trained_on(x, later)
    (site,) = function.sites
    assert "0 bytes can be computed ahead" in overview.sentence(site)
    assert site.program is None
    assert site.is_settled
    for number in range(40):
        check(function, weights(number), x)
        later.jobs.append(lambda: None)
        assert len(later.jobs) == 1, "the same arguments are not prepared again"
        later.run()
        assert not site.preparation.bytes


def test_weights_that_stay_after_training_are_frozen() -> None:
    x, later, p = jnp.cos(jnp.arange(2.0 * WIDTH * WIDTH)).reshape(WIDTH, 2 * WIDTH), Later(), weights(3.0)
    function = trained_on(x, later)
    (site,) = function.sites
    for _ in range(16):
        check(function, p, x)
        later.run()
    assert len(site.names) == 3
    assert site.preparation.trials
    check(function, weights(5.0), x)
    check(function, p, jax.numpy.array(x))
