"""The models in JAX: Keras on its JAX backend, Flax from transformers and diffusers. Weights are random."""

# pyright: basic, reportPrivateImportUsage=false, reportArgumentType=false
# The frameworks have no complete type hints.
# diffusers exports its models in a way that is seen only when it runs, and says Tuple[str] of tuples of any length.
from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from hlo_dispatch.bench.models.older_numpy import flax_t5
from hlo_dispatch.demo.keras_network import network
from hlo_dispatch.demo.models import MODELS as DEMO
from hlo_dispatch.demo.models import random_weights

Built = tuple[Callable[..., Any], tuple[Any, ...]]
"""A pure function and its arguments."""
_DTYPES = {"f32": "float32", "bf16": "bfloat16"}
_KERAS = {
    "resnet50": "ResNet50", "mobilenetv2": "MobileNetV2", "efficientnetb0": "EfficientNetB0",
    "convnexttiny": "ConvNeXtTiny", "densenet121": "DenseNet121", "inceptionv3": "InceptionV3",
    "mobilenetv3": "MobileNetV3Large", "xception": "Xception",
}  # fmt: skip


def build(model: str, dtype: str, batch: int, options: dict[str, int]) -> Built:
    """One model of the catalogue."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    if model in _KERAS:
        return _keras(_KERAS[model], _DTYPES[dtype], batch, **options)
    return _OTHERS[model](dtype=_DTYPES[dtype], batch=batch, **options)


def leading_weights(model: str) -> int:
    """Number of a model's leading arguments that are weights."""
    return 2 if model in _KERAS else 1


def _keras(application: str, dtype: str, batch: int, *, size: int = 224) -> Built:
    import jax
    import numpy as np

    predict, trainable, frozen = network(application, size=size, dtype=dtype)
    images = np.random.default_rng(0).uniform(-1, 1, (batch, size, size, 3))
    return predict, (trainable, frozen, jax.numpy.asarray(images, dtype))


def _unet(*, dtype: str, batch: int, size: int = 64, narrow: int = 0) -> Built:
    channels = (32, 64) if narrow else (320, 640, 1280, 1280)
    return DEMO["unet"].build(size=size, channels=channels, batch=batch, dtype=dtype)


def _text(module: Any, dtype: str, batch: int, tokens: int, vocabulary: int, types: bool = False) -> Built:
    """A Flax module of transformers that reads token numbers."""
    import jax

    identifiers = jax.random.randint(jax.random.key(0), (batch, tokens), 0, vocabulary)
    mask = jax.numpy.ones((batch, tokens), "int32")
    positions = jax.numpy.broadcast_to(jax.numpy.arange(tokens), (batch, tokens))
    inputs = (identifiers, mask, *((jax.numpy.zeros_like(mask),) if types else ()), positions)
    weights = random_weights(lambda key: module.init(key, *inputs), dtype)

    def run(weights: Any, *inputs: Any) -> Any:
        return module.apply(weights, *inputs)[0]

    return run, (weights, *inputs)


def _gpt2(*, dtype: str, batch: int, tokens: int = 128, layers: int = 12) -> Built:
    import jax
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_flax_gpt2 import FlaxGPT2LMHeadModule

    module = FlaxGPT2LMHeadModule(GPT2Config(n_layer=layers), dtype=jax.numpy.dtype(dtype))
    return _text(module, dtype, batch, tokens, 50257)


def _gpt2_decode(*, dtype: str, batch: int, tokens: int = 512, layers: int = 12) -> Built:
    """One token behind tokens - 1 others, whose keys and values are given; returns logits, and those of all tokens."""
    import jax
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_flax_gpt2 import FlaxGPT2LMHeadModule

    module = FlaxGPT2LMHeadModule(GPT2Config(n_layer=layers), dtype=jax.numpy.dtype(dtype))
    mask = jax.numpy.ones((batch, tokens), "int32")
    token, position = mask[:, :1], jax.numpy.full((batch, 1), tokens - 1)
    weights = random_weights(lambda key: {"params": module.init(key, token, mask[:, :1], position)["params"]}, dtype)
    shapes = jax.eval_shape(lambda key: module.init(key, mask, mask, mask, init_cache=True)["cache"], jax.random.key(0))

    def fill(leaf: Any) -> Any:
        # The only whole number is how many tokens there are.
        if not leaf.shape:
            return jax.numpy.asarray(tokens - 1, leaf.dtype)
        return jax.random.normal(jax.random.key(len(leaf.shape)), leaf.shape, dtype)

    def decode(weights: Any, cache: Any, token: Any, mask: Any, position: Any) -> Any:
        found, after = module.apply(weights | {"cache": cache}, token, mask, position, mutable=["cache"])
        return found[0], after["cache"]

    return decode, (weights, jax.tree.map(fill, shapes), token, mask, position)


def _t5_encoder(*, dtype: str, batch: int, tokens: int = 128, layers: int = 12) -> Built:
    import jax

    module = flax_t5().FlaxT5EncoderModule(t5_config(layers), dtype=jax.numpy.dtype(dtype))
    identifiers = jax.random.randint(jax.random.key(0), (batch, tokens), 0, 32128)
    inputs = (identifiers, jax.numpy.ones((batch, tokens), "int32"))
    weights = random_weights(lambda key: module.init(key, *inputs), dtype)
    return lambda weights, *inputs: module.apply(weights, *inputs)[0], (weights, *inputs)


def t5_config(layers: int = 12) -> Any:
    """T5-base's."""
    from transformers import T5Config

    return T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=layers, num_heads=12)


def _whisper_encoder(*, dtype: str, batch: int, positions: int = 1500, layers: int = 6) -> Built:
    import jax
    from transformers.models.whisper.modeling_flax_whisper import FlaxWhisperEncoder

    module = FlaxWhisperEncoder(whisper_config(positions, layers), dtype=jax.numpy.dtype(dtype))
    features = jax.random.normal(jax.random.key(0), (batch, 80, 2 * positions), dtype)
    weights = random_weights(lambda key: module.init(key, features), dtype)
    return lambda weights, features: module.apply(weights, features)[0], (weights, features)


def whisper_config(positions: int = 1500, layers: int = 6) -> Any:
    """Whisper base's."""
    from transformers import WhisperConfig

    return WhisperConfig(
        d_model=512, encoder_layers=layers, encoder_attention_heads=8, encoder_ffn_dim=2048,
        max_source_positions=positions,
    )  # fmt: skip


def _vit(*, dtype: str, batch: int, layers: int = 12) -> Built:
    import jax
    from transformers import ViTConfig
    from transformers.models.vit.modeling_flax_vit import FlaxViTForImageClassificationModule

    settings = ViTConfig(num_labels=1000, num_hidden_layers=layers)
    module = FlaxViTForImageClassificationModule(settings, dtype=jax.numpy.dtype(dtype))
    images = jax.random.normal(jax.random.key(0), (batch, 224, 224, 3), dtype)
    weights = random_weights(lambda key: module.init(key, images), dtype)
    return lambda weights, images: module.apply(weights, images)[0], (weights, images)


def _text_encoder(*, dtype: str, batch: int, layers: int = 12) -> Built:
    import jax
    from transformers.models.clip.modeling_flax_clip import FlaxCLIPTextModule

    module = FlaxCLIPTextModule(text_config(layers), dtype=jax.numpy.dtype(dtype))
    return _text(module, dtype, batch, 77, 49408)


def text_config(layers: int = 12) -> Any:
    """Stable Diffusion 1.4's text encoder: CLIP ViT-L/14's."""
    from transformers import CLIPTextConfig

    return CLIPTextConfig(
        hidden_size=768, intermediate_size=3072, num_attention_heads=12, num_hidden_layers=layers, projection_dim=768
    )


def _vae_decoder(*, dtype: str, batch: int, size: int = 64, narrow: int = 0) -> Built:
    import jax

    module = vae(dtype, size * 8, (32, 64) if narrow else (128, 256, 512, 512))
    latents = jax.random.normal(jax.random.key(0), (batch, 4, size, size), dtype)
    weights = random_weights(lambda key: {"params": module.init_weights(key)}, dtype)
    return lambda weights, latents: module.apply(weights, latents, method=module.decode).sample, (weights, latents)


def vae(dtype: str, size: int, channels: tuple[int, ...]) -> Any:
    """Stable Diffusion's autoencoder."""
    import jax
    from diffusers import FlaxAutoencoderKL

    return FlaxAutoencoderKL(
        sample_size=size,
        latent_channels=4,
        block_out_channels=channels,
        layers_per_block=2,
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        dtype=jax.numpy.dtype(dtype),
    )


_OTHERS: dict[str, Callable[..., Built]] = {
    "bert": DEMO["bert"].build,
    "gpt2": _gpt2,
    "gpt2-1024": partial(_gpt2, tokens=1024),
    "gpt2-decode": _gpt2_decode,
    "t5-encoder": _t5_encoder,
    "whisper-encoder": _whisper_encoder,
    "vit": _vit,
    "unet": _unet,
    "text-encoder": _text_encoder,
    "vae-decoder": _vae_decoder,
}
