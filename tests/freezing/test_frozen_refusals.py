"""Refusals of freeze: each is one sentence with a remedy, and changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch import FreezeError

os.environ.setdefault("KERAS_BACKEND", "jax")
W = jnp.full((3, 3), 0.5)
X = jax.random.normal(jax.random.key(0), (4, 8, 8, 3))


@contextmanager
def refused(*said: str) -> Generator[None]:
    with pytest.raises(FreezeError) as caught:
        yield
    sentence = str(caught.value)
    assert "\n" not in sentence
    for words in said:
        assert words in sentence


def product(w: Any, x: Any) -> Any:
    return x @ w


class Tensor:
    """What JAX sees of one of PyTorch's."""

    def __init__(self, values: Any) -> None:
        self.shape, self.dtype = values.shape, "torch.float32"


def test_tensors_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    fast = hlo_dispatch.freeze(product, W)
    words = ("torch.Tensor", "jnp.asarray", "jax_view")
    with refused(*words):
        fast(Tensor(X))
    wanted = fast(X)
    with refused(*words):
        fast(Tensor(X))
    fast(X[0])
    with refused(*words):
        fast(x=Tensor(X))
    with pytest.raises(TypeError):
        fast("no array at all")
    np.testing.assert_array_equal(fast(X), wanted)


def test_tensors_of_pytorch_for_a_loaded_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    fast = hlo_dispatch.freeze(product, W)
    wanted = fast(X)
    fast.save(tmp_path / "product")
    loaded = hlo_dispatch.load(tmp_path / "product")
    with refused("torch.Tensor", "jnp.asarray", "jax_view"):
        loaded(Tensor(X))
    np.testing.assert_array_equal(loaded(X), wanted)


TRANSFORMATIONS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "jit": lambda f: jax.jit(f)(W),
    "grad": lambda f: jax.grad(lambda w: f(w).sum())(W),
    "vmap": lambda f: jax.vmap(f)(W[None]),
    "scan": lambda f: jax.lax.scan(lambda c, w: (c, f(w)), 0, W[None]),
    "eval_shape": lambda f: jax.eval_shape(f, W),
}


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_traced_weights(transformation: str) -> None:
    run = TRANSFORMATIONS[transformation]
    with refused("frozen[0]['w'] is traced", "freeze outside of it"):
        run(lambda w: hlo_dispatch.freeze(lambda p, x: x @ p["w"], {"w": w})(X))
    fast = hlo_dispatch.freeze(product, W)
    wanted = fast(X)
    with refused("frozen[0] is traced"):
        run(lambda w: fast.update(w))
    np.testing.assert_array_equal(fast(X), wanted)


def test_weights_that_escaped_a_trace() -> None:
    escaped: list[Any] = []
    jax.jit(lambda w: escaped.append(w))(W)
    with refused("is traced", "freeze outside of it"):
        hlo_dispatch.freeze(product, escaped[0])
    with refused("closes over an array that is traced", "give it as an argument"):
        hlo_dispatch.freeze(lambda x: x @ escaped[0])(X)


def test_a_switch_of_pythons_among_the_arguments() -> None:
    fast = hlo_dispatch.freeze(lambda w, x, train: x @ w if train else x, W)
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        fast(X, True)
    assert any("a switch of Python's belongs into the function" in note for note in caught.value.__notes__)


def test_statistics_of_linen() -> None:
    nn = pytest.importorskip("flax.linen")

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            return nn.BatchNorm(use_running_average=not train)(x)

    model = Network()
    variables = model.init(jax.random.key(1), X, train=False)
    with refused("a call changes state", '"mean" in "/BatchNorm_0"', "have it infer", "return the new state"):
        hlo_dispatch.freeze(lambda v, x: model.apply(v, x, train=True), variables)(X)
    # As the sentence says: the new state is a result like others.
    training = lambda v, x: model.apply(v, x, train=True, mutable=["batch_stats"])  # noqa: E731
    for got, wanted in zip(
        jax.tree.leaves(hlo_dispatch.freeze(training, variables)(X)),
        jax.tree.leaves(training(variables, X)),
        strict=True,
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_statistics_of_nnx() -> None:
    nnx = pytest.importorskip("flax.nnx")

    class Training(nnx.Module):
        def __init__(self) -> None:
            self.norm = nnx.BatchNorm(3, rngs=nnx.Rngs(0))

        def __call__(self, x: Any) -> Any:
            return self.norm(x, use_running_average=False)

    model = Training()
    mean = np.asarray(model.norm.mean[...])
    with refused("a call changes", "mean", "have it infer"):
        hlo_dispatch.freeze(model)(X)
    with refused("a call changes", "have it infer"):
        hlo_dispatch.freeze(lambda x: model(x))(X)
    with refused("a call changes", "have it infer"):
        hlo_dispatch.freeze(lambda model, x: model(x), model)(X)
    np.testing.assert_array_equal(model.norm.mean[...], mean)
    model(X)
    assert np.abs(model.norm.mean[...] - mean).max() > 0, "it trains on"


def test_statistics_and_random_numbers_of_keras() -> None:
    keras = pytest.importorskip("keras")
    layers = keras.layers
    for layer, name in ((layers.BatchNormalization(), "moving_mean"), (layers.Dropout(0.5), "seed_generator_state")):
        model = keras.Sequential([keras.Input((8, 8, 3)), layer])
        for call in (lambda fast: fast(X, training=True), lambda fast: fast(X, True)):
            with refused("a frozen model infers: leave `training` out of the call"):
                call(hlo_dispatch.freeze(model))
        with refused("a call changes", name, "have it infer"):
            hlo_dispatch.freeze(lambda x, model=model: model(x, training=True))(X)
        wanted = model(X)
        np.testing.assert_allclose(hlo_dispatch.freeze(lambda x, model=model: model(x))(X), wanted, rtol=1e-5)

    class Training(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.norm = layers.BatchNormalization()

        def build(self, shape: Any) -> None:
            self.norm.build(shape)

        def call(self, x: Any) -> Any:
            return self.norm(x, training=True)

    layer = Training()
    layer.build((None, 8, 8, 3))
    with refused("a call changes the model's", "moving_mean", "have it infer"):
        hlo_dispatch.freeze(layer)(X)


@pytest.mark.parametrize("wrong", [{"w": W}, [W], None, 0.5, (W, W)])
def test_an_update_of_another_structure(wrong: Any) -> None:
    fast = hlo_dispatch.freeze(product, W)
    wanted = fast(X)
    with refused("update takes what freeze took, with new values; for another model freeze anew"):
        fast.update(wrong)
    with refused("frozen[1] is new"):
        fast.update(W, W)
    np.testing.assert_array_equal(fast(X), wanted)


@pytest.mark.parametrize("wrong", [W[:2], W.astype("bfloat16"), np.asarray(W, "float64"), W[0, 0]])
def test_an_update_of_another_shape_or_type(wrong: Any) -> None:
    fast = hlo_dispatch.freeze(product, W)
    wanted = fast(X)
    with refused("frozen[0] was float32[3,3] and would become ", "convert it, or freeze anew"):
        fast.update(wrong)
    np.testing.assert_array_equal(fast(X), wanted)
