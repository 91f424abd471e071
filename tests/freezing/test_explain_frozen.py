"""`explain` and `tune` of a frozen function: of the program with preprocessed weights, not of a plain function's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.errors import FreezeError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.match import PLAIN_WEIGHTS

random = np.random.default_rng(7)
X = random.standard_normal((8, 64), np.float32)


def layer(weights, x):
    return jax.nn.relu(x @ weights["up"]) @ weights["down"]


def some_weights() -> dict[str, jax.Array]:
    shapes = {"up": (64, 96), "down": (96, 64)}
    return {name: jnp.asarray(random.standard_normal(shape, np.float32)) for name, shape in shapes.items()}


@pytest.mark.parametrize("is_called", [False, True])
def test_the_report_is_of_the_frozen_program(is_called: bool) -> None:
    weights = some_weights()
    frozen = hlo_dispatch.freeze(layer, weights, weights="bf16")
    with hlo_dispatch.enabled(policy="always"):
        if is_called:
            frozen(X)
        report = hlo_dispatch.explain(frozen, X)
    assert report.module == "jit_layer"
    assert [region.kernel for region in report.dispatched]
    assert {"partition", "call grouping"} <= set(report.stages)
    assert report.before is not None
    assert report.after is not None
    parameters = [i for i in Module.from_bytes(report.before).entry.instructions if i.opcode == "parameter"]
    assert len(parameters) == 3, "weights are arguments, not constants of the program"
    types = {i.shape.element_type for i in parameters}
    assert len(types) == 2, "the weights are stored in bf16"
    if is_called:
        (program,) = frozen.report.programs
        assert program.dispatched is not None
        assert [r.formula for r in program.dispatched.dispatched] == [r.formula for r in report.dispatched]


def test_nothing_is_preprocessed_or_deleted() -> None:
    weights = some_weights()
    frozen = hlo_dispatch.freeze(layer, weights, donate=True)
    with hlo_dispatch.enabled(policy="always"):
        hlo_dispatch.explain(frozen, X)
        assert not frozen.report.programs
        assert not any(array.is_deleted() for array in weights.values())
        frozen(X)
        with pytest.raises(FreezeError, match="explaining or tuning it needs them once more"):
            hlo_dispatch.explain(frozen, X)


def test_not_inside_of_another_program() -> None:
    frozen = hlo_dispatch.freeze(layer, some_weights(), keep=True)
    with pytest.raises(FreezeError, match=r"cannot be compiled inside of jax\.jit"):
        jax.jit(lambda x: hlo_dispatch.explain(frozen, x))(X)


def test_tuning_measures_the_frozen_program() -> None:
    """Where weights are static, plain ones are a variant of each alternative kernel."""
    weights = some_weights()
    frozen = hlo_dispatch.freeze(layer, weights)
    tuned = hlo_dispatch.tune(frozen, X)
    assert tuned.regions
    assert not tuned.failures
    assert any(variant.endswith(PLAIN_WEIGHTS) for region in tuned.regions for variant in region.seconds)
    with hlo_dispatch.enabled(policy="stored"):
        np.testing.assert_allclose(frozen(X), layer(weights, X), rtol=1e-4, atol=1e-4)
