"""Stable Diffusion as diffusers runs it on JAX, narrow and with random weights."""

from __future__ import annotations

from typing import Any

from hlo_dispatch.demo.models import random_weights, unet_settings

SIZE, TOKENS = 32, 16
VAE = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}


def pipeline() -> tuple[Any, dict[str, Any]]:
    """The pipeline and its weights."""
    from diffusers import (
        FlaxAutoencoderKL,
        FlaxDDIMScheduler,
        FlaxStableDiffusionPipeline,
        FlaxUNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, FlaxCLIPTextModel

    text = CLIPTextConfig(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=TOKENS,
    )
    text_encoder = FlaxCLIPTextModel(text, _do_init=False)
    settings = unet_settings(SIZE // 2, (32, 64)) | {"cross_attention_dim": 64, "layers_per_block": 1}
    unet = FlaxUNet2DConditionModel(**settings)
    vae = FlaxAutoencoderKL(sample_size=SIZE, block_out_channels=(32, 64), **VAE)
    scheduler = FlaxDDIMScheduler()
    made = FlaxStableDiffusionPipeline(vae, text_encoder, None, unet, scheduler, None, None)
    params = {
        "text_encoder": random_weights(lambda key: text_encoder.init_weights(key, (1, TOKENS)), "float32"),
        "unet": random_weights(unet.init_weights, "float32"),
        "vae": random_weights(vae.init_weights, "float32"),
        "scheduler": scheduler.create_state(),
    }
    return made, params
