"""A host that is Flax Stable Diffusion on the plugin's devices, its weights replicated, an image from each.

diffusion_worker.py RESULTS: writes the images, and those that jaxlib's own CPU client makes one after the other.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

import jax
import numpy as np
from flax.jax_utils import replicate
from flax.training.common_utils import shard

import tiny_diffusion
from tiny_diffusion import SIZE, TOKENS

STEPS, GUIDANCE = 3, 7.5
own = jax.devices("cpu")[0]
with jax.default_device(own):
    pipeline, weights = tiny_diffusion.pipeline()
    weights = jax.tree.map(np.asarray, weights)
    seeds = np.asarray(jax.random.split(jax.random.PRNGKey(0), jax.device_count()))
words = np.random.default_rng(0).integers(0, 90, (jax.device_count(), TOKENS), np.int32)
nothing = np.full_like(words, 99)

images = pipeline(
    shard(words), replicate(weights), seeds, STEPS, neg_prompt_ids=shard(nothing), guidance_scale=GUIDANCE, jit=True
).images


@jax.jit
def painted(words, seed, nothing):
    return pipeline._generate(words, weights, seed, STEPS, SIZE, SIZE, GUIDANCE, None, nothing)


with jax.default_device(own):
    expected = [painted(words[i : i + 1], seed, nothing[i : i + 1]) for i, seed in enumerate(seeds)]
np.savez(Path(sys.argv[1]) / "images.npz", got=images, expected=np.stack(expected))
library = ctypes.CDLL(os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"].partition(":")[2])
library.hlo_dispatch_pjrt_failure.restype = ctypes.c_char_p
dispatched = library.hlo_dispatch_pjrt_count(b"dispatched")
print(json.dumps({"dispatched": dispatched, "failure": library.hlo_dispatch_pjrt_failure().decode()}))
