"""Stable Diffusion: an image's latency from its measured parts, and the real pipeline for a few steps as a proof.

With guidance an image needs the text encoder twice, at each denoising step the UNet on a batch of two, and the
decoder once; the scheduler and the random numbers between them are what the proof may differ by.
"""

# pyright: basic, reportPrivateImportUsage=false, reportArgumentType=false
# The frameworks have no complete type hints.
# diffusers exports its models in a way that is seen only when it runs, and does not say that a pipeline can do without
# its tokenizer and safety checker.
from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterable
from typing import Any

from hlo_dispatch.bench.models.in_jax import text_config, vae
from hlo_dispatch.bench.models.view import latency

STEPS = (20, 50)


def image_latency(entries: Iterable[dict[str, Any]], peer: str, dtype: str, steps: int) -> float | None:
    """Seconds for an image of 512², from the results of the parts; None where one was not measured."""
    found = {(entry["model"], entry["batch"]): entry for entry in entries if entry["dtype"] == dtype}
    parts = [
        latency(found[part]["peers"].get(peer, [])) if part in found else None
        for part in (("text-encoder", 1), ("unet", 2), ("vae-decoder", 1))
    ]
    text, unet, decoder = parts
    if text is None or unet is None or decoder is None:
        return None
    return 2 * text + steps * unet + decoder


def pipeline(dtype: str, *, narrow: bool = False) -> tuple[Any, Any]:
    """(diffusers' own Flax pipeline, its parameters), random, at the real size unless `narrow`."""
    import jax
    from diffusers import FlaxPNDMScheduler, FlaxStableDiffusionPipeline, FlaxUNet2DConditionModel
    from transformers import FlaxCLIPTextModel

    from hlo_dispatch.demo.models import random_weights, unet_settings

    channels = (32, 64) if narrow else (320, 640, 1280, 1280)
    size = 16 if narrow else 64
    unet = FlaxUNet2DConditionModel(**unet_settings(size, channels), dtype=jax.numpy.dtype(dtype))
    decoder = vae(dtype, size * 8, (32, 64, 64, 64) if narrow else (128, 256, 512, 512))
    text = FlaxCLIPTextModel(text_config(1 if narrow else 12), dtype=jax.numpy.dtype(dtype), _do_init=False)
    scheduler = FlaxPNDMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", num_train_timesteps=1000, skip_prk_steps=True
    )
    made = FlaxStableDiffusionPipeline(
        vae=decoder,
        text_encoder=text,
        tokenizer=None,
        unet=unet,
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        dtype=jax.numpy.dtype(dtype),
    )
    words = jax.numpy.ones((1, 77), "int32")
    parameters = {
        "unet": random_weights(lambda key: {"params": unet.init_weights(key)}, dtype)["params"],
        "vae": random_weights(lambda key: {"params": decoder.init_weights(key)}, dtype)["params"],
        "text_encoder": random_weights(
            lambda key: text.module.init(key, words, words, words, return_dict=False), dtype
        )["params"],
        "scheduler": scheduler.create_state(),
    }
    return made, parameters


def run_pipeline(dtype: str, steps: int, *, dispatched: bool, narrow: bool = False) -> dict[str, Any]:
    """Run the whole pipeline twice; seconds of the first run (compiling) and of the second, and facts of the image."""
    import jax
    import numpy as np

    import hlo_dispatch

    hlo_dispatch.uninstall()
    jax.config.update("jax_enable_compilation_cache", False)
    made, parameters = pipeline(dtype, narrow=narrow)
    if dispatched:
        hlo_dispatch.install()
    words = jax.random.randint(jax.random.key(1), (1, 1, 77), 0, 49000)
    one = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf)[None], parameters)
    seeds = jax.random.split(jax.random.PRNGKey(0), 1)
    times, images = [], None
    for _ in range(2):
        begin = time.perf_counter()
        images = made(words, one, seeds, steps, jit=True, neg_prompt_ids=words * 0).images
        images = np.asarray(jax.block_until_ready(images), np.float32)
        times.append(time.perf_counter() - begin)
    assert images is not None
    reports = hlo_dispatch.reports()
    return {
        "steps": steps,
        "dtype": dtype,
        "side": "ours" if dispatched else "stock",
        "first_run": times[0],
        "second_run": times[1],
        "image": list(images.shape),
        "mean": float(images.mean()),
        "deviation": float(images.std()),
        "dispatched": sum(len(report.dispatched) for report in reports),
    }


def main() -> None:
    """Run the real pipeline in this process and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=("stock", "ours"))
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--narrow", action="store_true", help="a small one, to see that it works")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = run_pipeline(given.dtype, given.steps, dispatched=given.side == "ours", narrow=given.narrow)
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
