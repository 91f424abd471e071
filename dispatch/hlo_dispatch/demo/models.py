"""Model workloads as (function, arguments): one list for the demo, the tests and the benchmarks.

Weights are random (nothing is downloaded) and are arguments, not constants: XLA would otherwise fold them
and no model is used that way. Batch-norm statistics are random too, because zeros and ones would hide a
wrong epilogue. Frameworks are imported by the builders, never by this module.
"""

# pyright: basic, reportPrivateImportUsage=false
# The frameworks have no complete type hints; diffusers exports its models in a way that is seen only when it runs.
from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hlo_dispatch.demo import gaussian_process
from hlo_dispatch.demo.keras_network import network
from hlo_dispatch.errors import HloDispatchError

INSTALL_ADVICE = "pip install 'hlo-dispatch[models]'"


class ModelUnavailable(HloDispatchError):
    """A model whose framework is not installed; the message says how to get it."""


@dataclass(frozen=True)
class Workload:
    """A pure function and its arguments, ready for `jax.jit(function)(*arguments)`."""

    name: str
    title: str
    """For a person: `Keras ResNet50, 224x224, batch 1`."""
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    weights: int = 0
    """How many of the leading arguments are weights that the demo freezes."""


@dataclass(frozen=True)
class Model:
    """A model that can be built; `options` are what its builder takes by keyword."""

    name: str
    title: str
    build: Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]]
    needs: tuple[str, ...]
    """The modules that must be importable."""
    weights: int = 0
    """How many of the leading arguments are weights that the demo freezes."""

    def workload(self, **options: Any) -> Workload:
        """Import the framework, make random weights, return the workload."""
        # Keras reads its backend once, at its first import, and would look for TensorFlow.
        os.environ.setdefault("KERAS_BACKEND", "jax")
        try:
            function, arguments = self.build(**options)
        except ImportError as error:
            missing = error.name or str(error)
            raise ModelUnavailable(
                f"{self.title}: {missing} is not installed; get it with: {INSTALL_ADVICE}"
            ) from error
        return Workload(self.name, self.title, function, arguments, self.weights)


def _keras(application: str, *, size: int = 224, batch: int = 1) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import numpy as np

    predict, trainable, frozen = network(application, size=size)
    images = np.random.default_rng(0).uniform(-1, 1, (batch, size, size, 3)).astype("float32")
    return predict, (trainable, frozen, images)


def _bert_layer(
    *, tokens: int = 128, batch: int = 1, dtype: str = "float32"
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    from transformers import BertConfig
    from transformers.models.bert.modeling_flax_bert import FlaxBertLayer

    layer = FlaxBertLayer(BertConfig(), dtype=jax.numpy.dtype(dtype))
    hidden = jax.random.normal(jax.random.key(0), (batch, tokens, 768), dtype)
    mask = jax.numpy.ones((batch, tokens), "int32")
    weights = random_weights(lambda key: layer.init(key, hidden, mask, None), dtype)

    def encode(weights: Any, hidden: Any, mask: Any) -> Any:
        return layer.apply(weights, hidden, mask, None)[0]

    return encode, (weights, hidden, mask)


def _bert(
    *, tokens: int = 128, batch: int = 1, dtype: str = "float32", layers: int = 12
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    from transformers import BertConfig
    from transformers.models.bert.modeling_flax_bert import FlaxBertModule

    module = FlaxBertModule(BertConfig(num_hidden_layers=layers), dtype=jax.numpy.dtype(dtype))
    identifiers = jax.random.randint(jax.random.key(0), (batch, tokens), 0, 30522)
    mask = jax.numpy.ones((batch, tokens), "int32")
    types = jax.numpy.zeros((batch, tokens), "int32")
    positions = jax.numpy.broadcast_to(jax.numpy.arange(tokens), (batch, tokens))
    weights = random_weights(lambda key: module.init(key, identifiers, mask, types, positions, None), dtype)

    def encode(weights: Any, identifiers: Any, mask: Any) -> Any:
        return module.apply(weights, identifiers, mask, types, positions, None)[0]

    return encode, (weights, identifiers, mask)


def unet_settings(size: int, channels: tuple[int, ...]) -> dict[str, Any]:
    """Stable Diffusion 1.4's UNet for latents of size², as both JAX and PyTorch build it."""
    attention = len(channels) - 1
    return {
        "sample_size": size,
        "cross_attention_dim": 768,
        "attention_head_dim": 8,
        "block_out_channels": channels,
        "down_block_types": ("CrossAttnDownBlock2D",) * attention + ("DownBlock2D",),
        "up_block_types": ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * attention,
    }


def _unet(
    *, size: int = 16, channels: tuple[int, ...] = (32, 64), batch: int = 1, dtype: str = "float32"
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    from diffusers import FlaxUNet2DConditionModel

    unet = FlaxUNet2DConditionModel(**unet_settings(size, channels), dtype=jax.numpy.dtype(dtype))
    weights = random_weights(lambda key: {"params": unet.init_weights(key)}, dtype)
    latents = jax.random.normal(jax.random.key(0), (batch, 4, size, size), dtype)
    text = jax.random.normal(jax.random.key(2), (batch, 77, 768), dtype)

    def denoise(weights: Any, latents: Any, text: Any) -> Any:
        found: Any = unet.apply(weights, latents, jax.numpy.asarray([10]), text)
        return found.sample

    return denoise, (weights, latents, text)


def random_weights(initialise: Callable[[Any], Any], dtype: str) -> Any:
    """Fill the shapes that `initialise` would make; running it would compile a generator for each of them."""
    import jax
    import numpy as np

    generator = np.random.default_rng(7)

    def fill(path: tuple[Any, ...], leaf: Any) -> Any:
        noise = generator.standard_normal(leaf.shape, "float32")
        if len(leaf.shape) < 2:
            # Off their initial zeros and ones, which would hide mistakes.
            values = 0.02 * noise + ("scale" in jax.tree_util.keystr(path))
        else:
            values = noise / np.sqrt(np.prod(leaf.shape[:-1]))
        return jax.numpy.asarray(values, dtype)

    return jax.tree_util.tree_map_with_path(fill, jax.eval_shape(initialise, jax.random.key(1)))


_FULL_UNET = {"size": 64, "channels": (320, 640, 1280, 1280)}

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("gaussian-process", "Gaussian process regression, 2000 points, 3 steps", gaussian_process.training, ()),
        Model("resnet50", "Keras ResNet50", partial(_keras, "ResNet50"), ("keras",), weights=2),
        Model("mobilenetv2", "Keras MobileNetV2", partial(_keras, "MobileNetV2"), ("keras",)),
        Model("efficientnetb0", "Keras EfficientNetB0", partial(_keras, "EfficientNetB0"), ("keras",)),
        Model("bert-layer", "Flax BERT encoder layer", _bert_layer, ("flax", "transformers")),
        Model("bert", "Flax BERT-base", _bert, ("flax", "transformers")),
        Model("unet-small", "Flax Stable Diffusion UNet, narrow", _unet, ("flax", "diffusers")),
        Model("unet", "Flax Stable Diffusion 1.4 UNet", partial(_unet, **_FULL_UNET), ("flax", "diffusers")),
    )
}


def find(name: str) -> Model:
    """The model of that name; an unknown name is answered with the list."""
    if name not in MODELS:
        raise HloDispatchError(f"unknown model {name!r}; known: {', '.join(MODELS)}")
    return MODELS[name]
