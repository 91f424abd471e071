"""The models in PyTorch: Keras on its PyTorch backend, transformers and diffusers. Weights are random."""

# pyright: basic, reportMissingImports=false, reportPrivateImportUsage=false, reportArgumentType=false
# torch is not there everywhere.
# diffusers exports its models in a way that is seen only when it runs, and says Tuple[str] of tuples of any length.
from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
# Channels first is what PyTorch is fast with; Keras' ConvNeXt normalises the last dimension, whatever is there, and its
# DenseNet knows no other order.
_KERAS = {
    "resnet50": ("ResNet50", "channels_first"),
    "mobilenetv2": ("MobileNetV2", "channels_first"),
    "efficientnetb0": ("EfficientNetB0", "channels_first"),
    "convnexttiny": ("ConvNeXtTiny", "channels_last"),
    "densenet121": ("DenseNet121", "channels_last"),
    "inceptionv3": ("InceptionV3", "channels_first"),
    "mobilenetv3": ("MobileNetV3Large", "channels_first"),
    "xception": ("Xception", "channels_first"),
}


class First(torch.nn.Module):
    """A model whose answer is a tensor: the field of its result that is meant."""

    def __init__(self, model: Any, field: str) -> None:
        super().__init__()
        self.model, self.field = model, field

    def forward(self, *inputs: Any) -> Any:
        return getattr(self.model(*inputs), self.field)


def build(model: str, dtype: str, batch: int, options: dict[str, int]) -> tuple[Any, tuple[Any, ...]]:
    """(a module in evaluation mode, its inputs) of one model of the catalogue."""
    torch.manual_seed(0)
    if model in _KERAS:
        module, inputs = _keras(*_KERAS[model], dtype, batch, **options)
    else:
        module, inputs = _OTHERS[model](batch=batch, **options)
    wanted = DTYPES[dtype]
    inputs = tuple(value.to(wanted) if value.is_floating_point() else value for value in inputs)
    return module.eval().requires_grad_(False).to(wanted), inputs


def _keras(application: str, order: str, dtype: str, batch: int, *, size: int = 224) -> tuple[Any, tuple[Any, ...]]:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    keras.config.set_image_data_format(order)
    # Keras casts what its layers get to the policy's type, whatever the weights are.
    keras.config.set_dtype_policy({"f32": "float32", "bf16": "bfloat16"}[dtype])
    shape = (3, size, size) if order == "channels_first" else (size, size, 3)
    model = getattr(keras.applications, application)(weights=None, input_shape=shape, classifier_activation=None)
    return model, (torch.rand(batch, *shape) * 2 - 1,)


def traced(module: Any, inputs: tuple[Any, ...]) -> Any:
    """The module as a plain graph of PyTorch's own operations: Keras' layers are too much Python for the compiler."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return make_fx(lambda *values: module(*values))(*inputs)


def is_keras(model: str) -> bool:
    return model in _KERAS


def _identifiers(batch: int, tokens: int, vocabulary: int) -> Any:
    return torch.randint(0, vocabulary, (batch, tokens))


def _bert(*, batch: int, tokens: int = 128, layers: int = 12) -> tuple[Any, tuple[Any, ...]]:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(num_hidden_layers=layers))
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    return First(model, "last_hidden_state"), (_identifiers(batch, tokens, 30522), mask)


def _gpt2(*, batch: int, tokens: int = 128, layers: int = 12) -> tuple[Any, tuple[Any, ...]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, use_cache=False))
    return First(model, "logits"), (_identifiers(batch, tokens, 50257),)


class _Decoding(torch.nn.Module):
    """A model that is given one token, and keys and values of those before it, layer after layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Any, *cache: Any) -> Any:
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        known = DynamicCache()
        for keys, values in zip(cache[::2], cache[1::2], strict=True):
            # Its own way appends them to an empty tensor, which OpenVINO cannot read.
            layer = DynamicLayer()
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            known.layers.append(layer)
        found = self.model(token, past_key_values=known, use_cache=True)
        return found.logits, *(part for layer in found.past_key_values.to_legacy_cache() for part in layer)


def _gpt2_decode(*, batch: int, tokens: int = 512, layers: int = 12) -> tuple[Any, tuple[Any, ...]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=layers))
    cache = tuple(torch.randn(batch, 12, tokens - 1, 64) for _ in range(2 * layers))
    return _Decoding(model), (_identifiers(batch, 1, 50257), *cache)


def _t5_encoder(*, batch: int, tokens: int = 128, layers: int = 12) -> tuple[Any, tuple[Any, ...]]:
    from transformers import T5EncoderModel

    from hlo_dispatch.bench.models.in_jax import t5_config

    mask = torch.ones(batch, tokens, dtype=torch.int64)
    return First(T5EncoderModel(t5_config(layers)), "last_hidden_state"), (_identifiers(batch, tokens, 32128), mask)


def _whisper_encoder(*, batch: int, positions: int = 1500, layers: int = 6) -> tuple[Any, tuple[Any, ...]]:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    from hlo_dispatch.bench.models.in_jax import whisper_config

    model = WhisperEncoder(whisper_config(positions, layers))
    return First(model, "last_hidden_state"), (torch.randn(batch, 80, 2 * positions),)


def _vit(*, batch: int, layers: int = 12) -> tuple[Any, tuple[Any, ...]]:
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_labels=1000, num_hidden_layers=layers))
    return First(model, "logits"), (torch.randn(batch, 3, 224, 224),)


def _unet(*, batch: int, size: int = 64, narrow: int = 0) -> tuple[Any, tuple[Any, ...]]:
    from diffusers import UNet2DConditionModel

    from hlo_dispatch.demo.models import unet_settings

    channels = (32, 64) if narrow else (320, 640, 1280, 1280)
    model = UNet2DConditionModel(**unet_settings(size, channels))
    inputs = (torch.randn(batch, 4, size, size), torch.tensor([10]), torch.randn(batch, 77, 768))
    return First(model, "sample"), inputs


def _text_encoder(*, batch: int, layers: int = 12) -> tuple[Any, tuple[Any, ...]]:
    from transformers import CLIPTextModel

    from hlo_dispatch.bench.models.in_jax import text_config

    return First(CLIPTextModel(text_config(layers)), "last_hidden_state"), (_identifiers(batch, 77, 49408),)


class _Decoder(torch.nn.Module):
    def __init__(self, vae: Any) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, latents: Any) -> Any:
        return self.vae.decode(latents).sample


def _vae_decoder(*, batch: int, size: int = 64, narrow: int = 0) -> tuple[Any, tuple[Any, ...]]:
    from diffusers import AutoencoderKL

    channels = (32, 64) if narrow else (128, 256, 512, 512)
    vae = AutoencoderKL(
        sample_size=size * 8,
        latent_channels=4,
        block_out_channels=channels,
        layers_per_block=2,
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
    )
    return _Decoder(vae), (torch.randn(batch, 4, size, size),)


_OTHERS: dict[str, Callable[..., tuple[Any, tuple[Any, ...]]]] = {
    "bert": _bert,
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
