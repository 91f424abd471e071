"""Stable Diffusion as diffusers runs it on JAX, narrow and with random weights: each part frozen by one line."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
import tiny_diffusion
from compiled_once import compiled_quickly
from tiny_diffusion import SIZE, TOKENS

pytest.importorskip("flax")
pytest.importorskip("transformers")
pytest.importorskip("diffusers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

STEPS, GUIDANCE = 4, 7.5
TOLERANCE = 1e-3
"""Of a colour between 0 and 1: the float32 promise is 1e-4 for one network, and here nine run one after the other."""


@pytest.fixture(scope="module")
def pipeline() -> tuple[Any, dict[str, Any]]:
    """The pipeline and its weights."""
    return tiny_diffusion.pipeline()


PROMPT, NOTHING = jnp.arange(TOKENS)[None] % 90, jnp.full((1, TOKENS), 99, "int32")
NOISE = jax.random.normal(jax.random.key(0), (1, 4, SIZE // 2, SIZE // 2))


def painting(pipeline: Any, params: Any, prompt: Any, noise: Any) -> Any:
    """The picture by the pipeline itself; loops are XLA's."""
    return pipeline._generate(prompt, params, None, STEPS, SIZE, SIZE, GUIDANCE, noise, NOTHING)


def changed(params: dict[str, Any]) -> dict[str, Any]:
    return {**params, "vae": jax.tree.map(lambda leaf: 0.5 * leaf, params["vae"])}


@pytest.fixture(scope="module")
def wanted(pipeline: tuple[Any, dict[str, Any]]) -> tuple[Any, Any]:
    """What stock XLA paints, with the weights as they are and changed."""
    made, params = pipeline
    paint = jax.jit(lambda params: painting(made, params, PROMPT, NOISE))
    with compiled_quickly():
        return paint(params), paint(changed(params))


def painted_by_parts(pipeline: Any, params: Any, encode: Any, denoise: Any, decode: Any) -> Any:
    """The picture by three functions, denoised in a loop of Python's."""
    context = jnp.concatenate([encode(NOTHING), encode(PROMPT)])
    scheduler = pipeline.scheduler
    state = scheduler.set_timesteps(params["scheduler"], num_inference_steps=STEPS, shape=NOISE.shape)
    latents = NOISE * state.init_noise_sigma
    for step in state.timesteps:
        noise = denoise(jnp.concatenate([latents, latents]), jnp.full(2, step, "int32"), context)
        without, with_prompt = jnp.split(noise, 2)
        latents = scheduler.step(state, without + GUIDANCE * (with_prompt - without), step, latents).prev_sample
    image = decode(latents / pipeline.vae.config.scaling_factor)
    return (image / 2 + 0.5).clip(0, 1).transpose(0, 2, 3, 1)


def assert_same_picture(got: Any, wanted: Any) -> None:
    assert got.shape == (1, SIZE, SIZE, 3)
    assert np.std(wanted) > 0.05, "it shows something"
    np.testing.assert_allclose(got, wanted, atol=TOLERANCE)


def test_each_part_is_frozen_by_one_line(pipeline: Any, wanted: Any) -> None:
    made, params = pipeline
    text_encoder, unet, vae = made.text_encoder, made.unet, made.vae
    with hlo_dispatch.enabled(policy="always"):
        encode = hlo_dispatch.freeze(lambda p, ids: text_encoder(ids, params=p)[0], params["text_encoder"])
        denoise = hlo_dispatch.freeze(lambda p, *args: unet.apply({"params": p}, *args).sample, params["unet"])
        decode = hlo_dispatch.freeze(lambda p, z: vae.apply({"params": p}, z, method=vae.decode).sample, params["vae"])
        assert_same_picture(painted_by_parts(made, params, encode, denoise, decode), wanted[0])
    for part in (encode, denoise, decode):
        (program,) = part.report.programs
        assert any(value.is_packed for value in program.prepared)
        assert program.dispatched is not None
        assert program.dispatched.dispatched


def test_the_pipeline_is_frozen_whole(pipeline: Any, wanted: Any) -> None:
    """Its loop calls the parts under a trace, where a frozen part is the function it was made of."""
    made, params = pipeline
    with hlo_dispatch.enabled(policy="always"):
        paint = hlo_dispatch.freeze(lambda p, prompt, noise: painting(made, p, prompt, noise), params)
        assert_same_picture(paint(PROMPT, NOISE), wanted[0])
        (program,) = paint.report.programs
        # Within the loop, too: encoder and decoder have some forty.
        assert sum(value.is_packed for value in program.prepared) > 80
        paint.update(changed(params))
        assert_same_picture(paint(PROMPT, NOISE), wanted[1])
