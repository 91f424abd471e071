"""Frozen models of each framework: inference mode, and replaceable weights."""

from __future__ import annotations

import gc
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch import FreezeError

os.environ.setdefault("KERAS_BACKEND", "jax")
X = jax.random.normal(jax.random.key(0), (4, 8, 8, 3))


@pytest.fixture(params=["kept", "prepared"], autouse=True)
def _prepares(request: pytest.FixtureRequest) -> None:
    if request.param == "prepared":
        request.getfixturevalue("everything_prepared")


def assert_same(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=2e-5, atol=2e-5)


def test_linen() -> None:
    nn = pytest.importorskip("flax.linen")

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool = False) -> Any:
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(8, (3, 3))(x)))
            x = nn.Dropout(0.5, deterministic=not train)(x)
            return nn.Dense(5)(x.reshape(x.shape[0], -1))

    model = Network()
    variables = model.init(jax.random.key(1), X)
    fast = hlo_dispatch.freeze(model.apply, variables)
    assert_same(fast(X), model.apply(variables, X))
    new = jax.tree.map(lambda leaf: leaf + 0.1, variables)
    fast.update(new)
    assert_same(fast(X), model.apply(new, X))
    with pytest.raises(FreezeError, match=r"model\.apply, variables"):
        hlo_dispatch.freeze(model)


def nnx_network(seed: int) -> Any:
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(8, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, rngs=rngs)
            self.linear = nnx.Linear(512, 5, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = self.dropout(nnx.relu(self.norm(self.conv(x))))
            return self.linear(x.reshape(x.shape[0], -1))

    nnx_network.__dict__.setdefault("type", Network)
    return nnx_network.__dict__["type"](nnx.Rngs(seed))


def test_nnx() -> None:
    nnx = pytest.importorskip("flax.nnx")
    model, other = nnx_network(0), nnx_network(1)
    fast = hlo_dispatch.freeze(model)
    result = fast(X)
    assert not model.dropout.deterministic, "it trains on"
    model.eval()
    assert_same(result, model(X))
    assert_same(fast(X), model(X))
    assert_same(hlo_dispatch.freeze(lambda x: model(x))(X), model(X))
    fast.update(other)
    other.eval()
    assert_same(fast(X), other(X))
    with pytest.raises(FreezeError, match="a Network with other weights"):
        fast.update({})

    class Counting(nnx.Module):
        def __init__(self) -> None:
            self.calls = nnx.Variable(jnp.zeros(3))

        def __call__(self, x: Any) -> Any:
            self.calls[...] += 1
            return x

    with pytest.raises(FreezeError, match=r"a call changes the model's.*calls"):
        hlo_dispatch.freeze(Counting())(X)


def test_keras() -> None:
    keras = pytest.importorskip("keras")
    layers = keras.layers

    def make() -> Any:
        return keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.Conv2D(8, 3),
                layers.BatchNormalization(),
                layers.ReLU(),
                layers.Dropout(0.5),
                layers.Flatten(),
                layers.Dense(5),
            ]
        )

    model = make()
    fast = hlo_dispatch.freeze(model)
    assert_same(fast(X), model(X))
    assert_same(fast(X[:2]), model(X[:2]))
    assert_same(hlo_dispatch.freeze(lambda x: model(x))(X), model(X))
    model.set_weights([weight + 0.1 for weight in model.get_weights()])
    fast.update(model)
    assert_same(fast(X), model(X))
    model = make()
    gc.collect()
    fast.update(model)
    assert_same(fast(X), model(X))
    assert_same(fast(X[:3]), model(X[:3]))
    with pytest.raises(FreezeError, match="leave `training` out"):
        fast(X, training=True)

    class Plain(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    plain = Plain()
    with pytest.raises(FreezeError, match="call it once"):
        hlo_dispatch.freeze(plain)
    plain(X)
    assert_same(hlo_dispatch.freeze(plain)(X), plain(X))
    with pytest.raises(FreezeError, match="a Sequential with other weights"):
        fast.update(plain)


def test_equinox() -> None:
    eqx = pytest.importorskip("equinox")

    class Network(eqx.Module):
        layers: Any
        dropout: Any
        activation: Any

        def __call__(self, x: Any) -> Any:
            return self.activation(self.dropout(self.layers(x)))

    def make(seed: int) -> Any:
        return Network(eqx.nn.MLP(3, 5, 16, 2, key=jax.random.key(seed)), eqx.nn.Dropout(0.5), jnp.tanh)

    model, x = make(0), jnp.ones(3)
    infers = eqx.nn.inference_mode(model)
    fast = hlo_dispatch.freeze(model)
    assert_same(fast(x), infers(x))
    fast.update(make(1))
    assert_same(fast(x), eqx.nn.inference_mode(make(1))(x))
    assert_same(hlo_dispatch.freeze(eqx.filter_jit(lambda model, x: model(x)), infers)(x), infers(x))
    assert_same(hlo_dispatch.freeze(eqx.filter_jit(lambda x: infers(x)))(x), infers(x))


def test_torchax() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchax", exc_type=Exception)
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(288, 5)
    )
    x = np.moveaxis(np.asarray(X), 3, 1).copy()
    fast = hlo_dispatch.freeze(model)
    result = fast(jnp.asarray(x))
    assert model.training
    assert model[3].training
    model.eval()
    assert_same(result, model(torch.from_numpy(x)).detach())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    fast.update(model)
    assert_same(fast(jnp.asarray(x)), model(torch.from_numpy(x)).detach())
    with pytest.raises(hlo_dispatch.FreezeError, match="jax_view"):
        fast(torch.from_numpy(x))
