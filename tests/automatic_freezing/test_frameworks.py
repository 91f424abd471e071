"""Programs of frameworks under `hlo_dispatch.jit` compute what they do under `jax.jit`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.automatic_freezing import overview
from hlo_dispatch.automatic_freezing.jit import JittedFunction
from hlo_dispatch.jax_plugin.jit_replacement import replace_jit, restore_jit

os.environ.setdefault("KERAS_BACKEND", "jax")
pytestmark = pytest.mark.usefixtures("_compiled_quickly")
WIDTH = 160  # 100 kB of weights in f32: enough to be frozen


@pytest.fixture(autouse=True)
def _replaced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As under `hlo-dispatch run`, but frozen in the first call."""
    monkeypatch.setenv("HLO_DISPATCH_FREEZE", "now")
    replace_jit()
    yield
    restore_jit()


def inputs(number: int, rows: int = 3) -> np.ndarray:
    return np.random.default_rng(number).standard_normal((rows, WIDTH)).astype("float32")


def frozen_names(function: Any) -> list[str]:
    assert isinstance(function, JittedFunction)
    assert not any(site.preparation.failure for site in function.sites)
    return [name for site in function.sites if site.program is not None for name in site.names]


def test_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "jax":
        pytest.skip("Keras runs on another backend")
    made: list[Any] = []

    def jit(*args: Any, **kwargs: Any) -> Any:
        made.append(hlo_dispatch.jit(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr("keras.src.backend.jax.trainer.jit", jit)
    layers = [keras.layers.BatchNormalization(), keras.layers.Dense(WIDTH)]
    model = keras.Sequential([keras.layers.Input((WIDTH,)), *layers])
    model.compile(loss="mse", metrics=["mae"], optimizer="sgd")
    x, y = inputs(0, 8), np.ones((8, WIDTH), "float32")
    for _ in range(2):
        wanted = np.asarray(model(x))
        for _ in range(2):
            np.testing.assert_allclose(model.predict(x, batch_size=4, verbose=0), wanted, rtol=1e-4, atol=1e-5)
            _, error = model.evaluate(x, y, batch_size=4, verbose=0)
            np.testing.assert_allclose(error, np.abs(wanted - y).mean(), rtol=1e-4)
        model.fit(x, y, batch_size=8, verbose=0)
        assert np.abs(np.asarray(model(x)) - wanted).max() > 1e-4, "it has learnt"
    predict, evaluate, train = (next(f for f in made if f.__name__.startswith(n)) for n in ("pred", "test", "train"))
    assert predict.sites[0].plain.forwarded
    assert evaluate.sites[0].plain.forwarded
    assert not train.sites[0].plain.forwarded


def test_flax_train_state() -> None:
    optax, linen = pytest.importorskip("optax"), pytest.importorskip("flax.linen")
    from flax.training.train_state import TrainState

    model = linen.Dense(WIDTH)
    params = {"params": {"kernel": jnp.eye(WIDTH), "bias": jnp.ones(WIDTH)}}
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.sgd(1e-2))

    def step(state: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda p: (state.apply_fn(p, x) ** 2).mean())(state.params)
        return state.apply_gradients(grads=gradient), loss

    def evaluate(state: Any, x: Any) -> Any:
        return state.apply_fn(state.params, x)

    train, evaluated, plain = jax.jit(step, donate_argnums=0), jax.jit(evaluate), jax.tree.map(jnp.array, state)
    for number in range(3):
        state, loss = train(state, inputs(number))
        plain, wanted = train.jitted(plain, inputs(number))
        np.testing.assert_allclose(loss, wanted, rtol=1e-4)
        for _ in range(2):
            wanted = evaluated.jitted(plain, inputs(number))
            np.testing.assert_allclose(evaluated(state, inputs(number)), wanted, rtol=1e-3, atol=1e-4)


def test_nnx() -> None:
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Linear(WIDTH, WIDTH, rngs=nnx.Rngs(0))
    function = nnx.jit(lambda model, x: model(x))
    for number in range(4):
        if number == 2:
            model.kernel[...] = 2.0 * model.kernel[...]
        np.testing.assert_allclose(function(model, inputs(number)), model(inputs(number)), rtol=1e-4, atol=1e-4)
    # `nnx.jit` returns every variable; this does not.
    graph, state = nnx.split(model)
    split = jax.jit(lambda state, x: nnx.merge(graph, state)(x))
    for number in range(3):
        np.testing.assert_allclose(split(state, inputs(number)), model(inputs(number)), rtol=1e-4, atol=1e-4)
    assert len(frozen_names(split)) == 2


def test_equinox() -> None:
    equinox = pytest.importorskip("equinox")
    layer = equinox.nn.Linear(WIDTH, WIDTH, key=jax.random.key(0))
    function = equinox.filter_jit(lambda layer, x: jax.vmap(layer)(x))
    for number in range(4):
        if number == 2:
            layer = equinox.tree_at(lambda layer: layer.weight, layer, 2.0 * layer.weight)
        np.testing.assert_allclose(
            function(layer, inputs(number)), jax.vmap(layer)(inputs(number)), rtol=1e-4, atol=1e-4
        )
    assert any("2 arguments frozen" in sentence for sentence in overview.sentences())


def test_haiku() -> None:
    haiku = pytest.importorskip("haiku")
    model = haiku.without_apply_rng(haiku.transform(lambda x: haiku.nets.MLP([WIDTH, 3])(x)))
    p = model.init(jax.random.key(0), inputs(0))
    function = jax.jit(model.apply)
    for number in range(4):
        if number == 2:
            p = jax.tree.map(lambda leaf: 2.0 * leaf, p)
        np.testing.assert_allclose(function(p, inputs(number)), model.apply(p, inputs(number)), rtol=1e-4, atol=1e-4)
    assert len(frozen_names(function)) == 4


def test_numpyro() -> None:
    numpyro, infer = pytest.importorskip("numpyro"), pytest.importorskip("numpyro.infer")
    x, wanted = jnp.asarray(inputs(0, 200)), np.arange(WIDTH) % 3

    def model(x: Any, y: Any) -> None:
        b = numpyro.sample("b", numpyro.distributions.Normal(jnp.zeros(WIDTH), 1.0).to_event(1))
        numpyro.sample("y", numpyro.distributions.Normal(x @ b, 0.1), obs=y)

    chains = infer.MCMC(infer.NUTS(model), num_warmup=30, num_samples=30, progress_bar=False)
    chains.run(jax.random.key(1), x, x @ wanted)
    assert np.abs(np.asarray(chains.get_samples()["b"]).mean(0) - wanted).max() < 0.5


def test_hf_flax() -> None:
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "FlaxBertModel"):
        pytest.skip("this Transformers has no Flax models")
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 50}
    config = transformers.BertConfig(hidden_size=128, max_position_embeddings=16, **sizes)
    model = transformers.FlaxBertModel(config, input_shape=(1, 8))

    def call(params: Any, ids: Any) -> Any:
        return model(ids, params=params).last_hidden_state

    function, plain = jax.jit(call), jax.jit(call).jitted
    for number in range(3):
        ids = np.random.default_rng(number).integers(0, 50, (2, 8))
        wanted = plain(model.params, ids)
        np.testing.assert_allclose(function(model.params, ids), wanted, rtol=1e-3, atol=1e-4)
    assert any("kernel" in name for name in frozen_names(function))


def test_one_function_under_two_devices_and_meshes() -> None:
    function = jax.jit(lambda p, x: jnp.tanh(x @ p))
    devices = jax.devices()
    for number in range(3):
        for device in (devices[0], devices[-1]):
            p = jax.device_put(jnp.eye(WIDTH) * (number + 1), device)
            mesh = jax.sharding.Mesh(np.array([device]), ("x",))
            sharded = jax.device_put(p, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
            for weights in (p, sharded, p):
                result = function(weights, inputs(number))
                np.testing.assert_allclose(result, np.tanh(inputs(number) * (number + 1)), rtol=1e-5, atol=1e-5)
                assert result.devices() == {device}
    assert overview.sentences()
