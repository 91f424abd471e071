"""Real models at their real sizes, as a pure function and the shapes of its arguments.

Weights never exist here: parameters are shapes that `fill.py` fills for those who want to run a model at a
smaller size. Frameworks are imported by the builders.
"""

# pyright: basic, reportArgumentType=false, reportPrivateImportUsage=false, reportAttributeAccessIssue=false
# jax has no complete type hints.
from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hlo_dispatch.bench.models.older_numpy import flax_t5
from hlo_dispatch.demo.models import unet_settings

Built = tuple[Callable[..., Any], tuple[Any, ...]]
"""A pure function and one tree of shapes for each of its arguments."""


@dataclass(frozen=True)
class ZooModel:
    """A model of the list; `build` takes `dtype` and what makes the model smaller."""

    name: str
    build: Callable[..., Built]
    needs: tuple[str, ...]
    """The modules that must be importable."""
    small: dict[str, Any] = field(default_factory=dict)
    """Options that make it quick to run, with everything the real one has in it."""
    quick: bool = False
    """Whether it is counted in every test run."""
    gain: float = 1.0
    """What `fill` needs for outputs that depend on the inputs."""
    dtype: str = "float32"

    def built(self, **options: Any) -> Built:
        """Function and shapes; `options` go to the builder."""
        os.environ.setdefault("KERAS_BACKEND", "jax")
        return self.build(**{"dtype": self.dtype} | options)

    def lowered(self, **options: Any) -> Any:
        """The model lowered and ready to compile."""
        import jax

        function, shapes = self.built(**options)
        return jax.jit(function).lower(*shapes)


def _shape(dimensions: tuple[int, ...], dtype: str) -> Any:
    import jax

    return jax.ShapeDtypeStruct(dimensions, dtype)


def _keras(application: str, *, dtype: str = "float32", size: int = 224, batch: int = 1) -> Built:
    import keras

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        # Variables made in here never get values.
        with keras.StatelessScope(initialize_variables=False):
            builder = getattr(keras.applications, application)
            # No softmax at the end: logits show differences that probabilities squash.
            model = builder(weights=None, input_shape=(size, size, 3), classifier_activation=None)
    finally:
        keras.config.set_dtype_policy(before)

    def predict(trainable: dict[str, Any], frozen: dict[str, Any], inputs: dict[str, Any]) -> Any:
        weights, state = list(trainable.values()), list(frozen.values())
        return model.stateless_call(weights, state, inputs["pixels"], training=False)[0]

    def shapes(variables: Any) -> dict[str, Any]:
        # Numbered, because a jax dict is sorted by its keys and the order is the call's.
        return {f"{i:04} {v.path}": _shape(v.shape, v.dtype) for i, v in enumerate(variables)}

    inputs = {"pixels": _shape((batch, size, size, 3), dtype)}
    return predict, (shapes(model.trainable_variables), shapes(model.non_trainable_variables), inputs)


def _flax(module: Any, inputs: dict[str, Any], dtype: str, **call: Any) -> Built:
    """A Flax module applied to named inputs, its parameters in `dtype`."""
    import jax

    def initialise(key: Any, inputs: dict[str, Any]) -> Any:
        return module.init({"params": key, "dropout": key, "gaussian": key}, **inputs, **call)

    def apply(weights: Any, inputs: dict[str, Any]) -> Any:
        return module.apply(weights, **inputs, **call)

    shapes = jax.eval_shape(initialise, jax.random.key(0), inputs)
    weights = jax.tree.map(lambda leaf: _shape(leaf.shape, dtype), shapes)
    return apply, (weights, inputs)


def _text(tokens: int, *names: str) -> dict[str, Any]:
    return {name: _shape((1, tokens), "int32") for name in names}


def _bert(*, dtype: str, tokens: int = 128, **config: Any) -> Built:
    from transformers import BertConfig
    from transformers.models.bert.modeling_flax_bert import FlaxBertModule

    inputs = _text(tokens, "input_ids", "attention_mask", "token_type_ids", "position_ids")
    module = FlaxBertModule(BertConfig(**config), dtype=_type(dtype))
    return _flax(module, inputs | {"head_mask": None}, dtype, return_dict=False)


def _gpt2(*, dtype: str, tokens: int = 128, **config: Any) -> Built:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_flax_gpt2 import FlaxGPT2LMHeadModule

    inputs = _text(tokens, "input_ids", "attention_mask", "position_ids")
    return _flax(FlaxGPT2LMHeadModule(GPT2Config(**config), dtype=_type(dtype)), inputs, dtype, return_dict=False)


def _vit(*, dtype: str, **config: Any) -> Built:
    from transformers import ViTConfig
    from transformers.models.vit.modeling_flax_vit import FlaxViTForImageClassificationModule

    settings = ViTConfig(num_labels=config.pop("num_labels", 1000), **config)
    # Flax wants the channels last.
    inputs = {"pixel_values": _shape((1, settings.image_size, settings.image_size, 3), dtype)}
    return _flax(FlaxViTForImageClassificationModule(settings, dtype=_type(dtype)), inputs, dtype, return_dict=False)


def _t5(*, dtype: str, tokens: int = 128, **config: Any) -> Built:
    from transformers import T5Config

    inputs = _text(tokens, "input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    module = flax_t5().FlaxT5ForConditionalGenerationModule(T5Config(**config), dtype=_type(dtype))
    return _flax(module, inputs, dtype, return_dict=False)


def _clip(*, dtype: str, text: dict[str, Any] | None = None, vision: dict[str, Any] | None = None) -> Built:
    from transformers import CLIPConfig
    from transformers.models.clip.modeling_flax_clip import FlaxCLIPModule

    config = CLIPConfig(text_config=text or {}, vision_config=vision or {})
    size = config.vision_config.image_size
    inputs = _text(config.text_config.max_position_embeddings, "input_ids", "attention_mask", "position_ids")
    inputs["pixel_values"] = _shape((1, size, size, 3), dtype)
    return _flax(FlaxCLIPModule(config, dtype=_type(dtype)), inputs, dtype, return_dict=False)


def _whisper(*, dtype: str, **config: Any) -> Built:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_flax_whisper import FlaxWhisperEncoder

    settings = WhisperConfig(**_WHISPER_BASE | config)
    frames = 2 * settings.max_source_positions
    inputs = {"input_features": _shape((1, settings.num_mel_bins, frames), dtype)}
    return _flax(FlaxWhisperEncoder(settings, dtype=_type(dtype)), inputs, dtype, return_dict=False)


def _unet(*, dtype: str, size: int = 64, channels: tuple[int, ...] = (320, 640, 1280, 1280), **config: Any) -> Built:
    from diffusers import FlaxUNet2DConditionModel

    module = FlaxUNet2DConditionModel(**unet_settings(size, channels) | config, dtype=_type(dtype))
    inputs = {
        "sample": _shape((1, 4, size, size), dtype),
        "timesteps": _shape((1,), "int32"),
        "encoder_hidden_states": _shape((1, 77, 768), dtype),
    }
    return _flax(module, inputs, dtype, return_dict=False)


def _vae(*, dtype: str, size: int = 512, channels: tuple[int, ...] = (128, 256, 512, 512), layers: int = 2) -> Built:
    from diffusers import FlaxAutoencoderKL

    module = FlaxAutoencoderKL(
        sample_size=size,
        block_out_channels=channels,
        layers_per_block=layers,
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        dtype=_type(dtype),
    )
    # With return_dict=False it trips over its own encoder's result.
    return _flax(module, {"sample": _shape((1, 3, size, size), dtype)}, dtype)


def _type(dtype: str) -> Any:
    import jax

    return jax.numpy.dtype(dtype)


_WHISPER_BASE = {"d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048}
_SMALL_TEXT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
_TRANSFORMERS = ("flax", "transformers")
_DIFFUSERS = ("flax", "diffusers")
# What follows attention is rounded in other places than what follows convolutions.
_ALSO_HALF = ("resnet50", "convnexttiny", "bert", "vit", "whisper-encoder", "unet", "vae")
_ALSO_GRADIENTS = ("resnet50", "mobilenetv2", "efficientnetb0", "convnexttiny", "densenet121", "bert", "unet")

_FLOAT32 = (
    ZooModel("resnet50", partial(_keras, "ResNet50"), ("keras",), {"size": 64}, quick=True, gain=1.4),
    ZooModel("mobilenetv2", partial(_keras, "MobileNetV2"), ("keras",), {"size": 96}, quick=True, gain=1.4),
    ZooModel("efficientnetb0", partial(_keras, "EfficientNetB0"), ("keras",), {"size": 96}, gain=1.6),
    ZooModel("convnexttiny", partial(_keras, "ConvNeXtTiny"), ("keras",), {"size": 64}, quick=True, gain=1.4),
    ZooModel("densenet121", partial(_keras, "DenseNet121"), ("keras",), {"size": 64}, gain=1.4),
    ZooModel("inceptionv3", partial(_keras, "InceptionV3", size=299), ("keras",), {"size": 75}, gain=1.4),
    ZooModel("xception", partial(_keras, "Xception", size=299), ("keras",), {"size": 71}, gain=1.4),
    ZooModel("bert", _bert, _TRANSFORMERS, _SMALL_TEXT | {"tokens": 32, "vocab_size": 1000}, quick=True),
    ZooModel(
        "gpt2", _gpt2, _TRANSFORMERS, {"n_embd": 128, "n_layer": 2, "n_head": 4, "tokens": 32, "vocab_size": 1000}
    ),
    ZooModel("vit", _vit, _TRANSFORMERS, _SMALL_TEXT | {"image_size": 64, "num_labels": 100}),
    ZooModel(
        "t5", _t5, _TRANSFORMERS,
        {"d_model": 128, "d_ff": 256, "num_layers": 2, "num_heads": 4, "d_kv": 32, "tokens": 32, "vocab_size": 1000},
    ),
    ZooModel(
        "clip", _clip, _TRANSFORMERS,
        {"text": _SMALL_TEXT | {"vocab_size": 1000}, "vision": _SMALL_TEXT | {"image_size": 64}},
    ),
    ZooModel(
        "whisper-encoder", _whisper, _TRANSFORMERS,
        {"d_model": 128, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 256,
         "max_source_positions": 64},
        quick=True,
    ),
    ZooModel("unet", _unet, _DIFFUSERS, {"size": 16, "channels": (64, 128), "layers_per_block": 1}),
    ZooModel("vae", _vae, _DIFFUSERS, {"size": 32, "channels": (32, 64), "layers": 1}),
)  # fmt: skip


def _half(model: ZooModel) -> ZooModel:
    return ZooModel(f"{model.name}-bf16", model.build, model.needs, model.small, gain=model.gain, dtype="bfloat16")


def _training(model: ZooModel) -> ZooModel:
    step = partial(_step, model.build)
    small = model.small | {"update": False}
    return ZooModel(f"{model.name}-gradient", step, model.needs, small, gain=model.gain)


def _step(build: Callable[..., Built], *, update: bool = True, **options: Any) -> Built:
    """One step of gradient descent on the mean square of the outputs; without `update` the gradients themselves."""
    import jax

    function, shapes = build(**options)

    def loss(weights: Any, *others: Any) -> Any:
        outputs = jax.tree.leaves(function(weights, *others))
        return sum(jax.numpy.mean(jax.numpy.square(output)) for output in outputs)

    def step(weights: Any, *others: Any) -> Any:
        gradients = jax.grad(loss)(weights, *others)
        if not update:
            return gradients
        return jax.tree.map(lambda weight, gradient: weight - 0.01 * gradient, weights, gradients)

    return step, shapes


ZOO: dict[str, ZooModel] = {model.name: model for model in _FLOAT32}
ZOO |= {half.name: half for half in (_half(ZOO[name]) for name in _ALSO_HALF)}
ZOO |= {training.name: training for training in (_training(ZOO[name]) for name in _ALSO_GRADIENTS)}
