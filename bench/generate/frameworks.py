"""Tokens and times of a framework's own `generate`, stock and frozen, against our decoder written by hand.

    python -m bench.generate.frameworks kerashub-llama3

It needs keras-hub, or transformers<5 and flax. A token's time is that of 64 generated tokens less that of 16, divided
by 48, and so is the processor's, of all threads, which neighbours stretch less; a framework that compiles a program for
each number of tokens has two of them there, so that all 64 tokens are timed, too, prompt included. The weights are
random, in f32.
"""

# pyright: basic, reportMissingImports=false, reportPrivateImportUsage=false
from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_dispatch
from hlo_dispatch.bench.generate import decoder
from hlo_dispatch.bench.generate.weights import SIZES, DecoderSize, random_prompt

PROMPT, MANY, FEW = 32, 64, 16
"""Tokens of the prompt, and numbers of generated ones."""
TOTAL = PROMPT + MANY


def kerashub(architecture: str, size: DecoderSize, weights: str | None) -> tuple[Any, Any]:
    """Functions of the number of generated tokens: stock's, and the frozen model's."""
    os.environ["KERAS_BACKEND"] = "jax"
    import keras_hub

    options = {
        "vocabulary_size": size.vocabulary, "num_layers": size.layers, "num_query_heads": size.heads,
        "num_key_value_heads": size.kv_heads, "hidden_dim": size.width, "intermediate_dim": size.hidden,
    }  # fmt: skip
    if architecture == "Gemma3":
        options |= {"head_dim": size.head_size, "image_size": 16, "vision_encoder": None}
        options |= {"use_sliding_window_attention": True, "sliding_window_size": 32}
    backbone = getattr(keras_hub.models, f"{architecture}Backbone")(**options)
    lm = getattr(keras_hub.models, f"{architecture}CausalLM")(backbone=backbone, preprocessor=None)
    lm.compile(sampler="greedy")
    tokens = np.resize(random_prompt(size, 1, PROMPT), (1, TOTAL))

    def prompt(count: int) -> dict[str, Any]:
        # One program generates as many as the padding leaves room for.
        is_prompt = np.arange(TOTAL)[None] < TOTAL - count
        images = {"images": np.zeros((1, 1), np.float32)} if architecture == "Gemma3" else {}
        return {"token_ids": np.where(is_prompt, tokens, 0), "padding_mask": is_prompt} | images

    fast = hlo_dispatch.freeze(lm, weights=weights)

    def generating(model: Any) -> Any:
        return lambda count: np.asarray(model.generate(prompt(count), stop_token_ids=None)["token_ids"])

    return generating(lm), generating(fast)


def hf_llama(_: str, size: DecoderSize, weights: str | None) -> tuple[Any, Any]:
    """Likewise."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, num_hidden_layers=size.layers, pad_token_id=0,
        num_attention_heads=size.heads, num_key_value_heads=size.kv_heads, intermediate_size=size.hidden,
        max_position_embeddings=2 * TOTAL, eos_token_id=size.vocabulary,  # never generated
    )  # fmt: skip
    model = transformers.FlaxLlamaForCausalLM(config, seed=0)
    fast = hlo_dispatch.freeze(model, weights=weights)
    ids = random_prompt(size, 1, PROMPT)
    # A loop of its own would be traced in each call.
    jitted = jax.jit(
        lambda params, ids, count: model.generate(ids, params=params, max_new_tokens=count).sequences, static_argnums=2
    )
    return (
        lambda count: np.asarray(jitted(model.params, ids, count)),
        lambda count: np.asarray(fast.generate(ids, max_new_tokens=count).sequences),
    )


def by_hand(size: DecoderSize, form: str, weights: str | None) -> Any:
    """The decoder's step, frozen, as a function of the number of generated tokens."""
    parameters = decoder.parameters(size, form, "float32")
    jitted = jax.jit(decoder.step(size, form), donate_argnums=1)
    run = hlo_dispatch.freeze(jitted, parameters, weights=weights, keep=True)
    tokens = jnp.asarray(random_prompt(size, 1, PROMPT))

    def generate(count: int) -> Any:
        token, cache = run(decoder.empty_cache(size, form, 1, TOTAL, "float32"), tokens, jnp.int32(0))
        for number in range(count - 1):
            token, cache = run(cache, token, jnp.int32(PROMPT + number))
        return np.asarray(token)

    return generate


MODELS = {"kerashub-llama3": (kerashub, "Llama3"), "kerashub-gemma3": (kerashub, "Gemma3"), "hf-llama": (hf_llama, "")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--size", choices=("medium", *SIZES), default="medium", help="medium: 0.06e9 parameters")
    parser.add_argument("--weights", choices=("int8", "int4", "bf16"))
    parser.add_argument("--forms", nargs="*", choices=decoder.FORMS, default=["scan", "unrolled"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--policy", default="measure")
    options = parser.parse_args()
    size = DecoderSize(8, 768, 12, 4, 2048, 8192) if options.size == "medium" else SIZES[options.size]
    make, architecture = MODELS[options.model]
    stock, frozen = make(architecture, size, options.weights)
    ways = {"stock": stock, "frozen": frozen}
    ways |= {f"by hand, {form}": by_hand(size, form, options.weights) for form in options.forms}
    tokens = {}
    for name, way in ways.items():
        with hlo_dispatch.enabled(policy="never" if name == "stock" else options.policy):
            start = time.perf_counter()
            tokens[name] = way(MANY)
            print(f"{name}: the first {MANY} tokens after {time.perf_counter() - start:.1f} s", flush=True)
            way(FEW)
    same = int((tokens["stock"][:, PROMPT:] == tokens["frozen"][:, PROMPT:]).sum())
    print(f"{same} of {MANY} tokens are stock's")
    clocks = {"": time.perf_counter, ", processor": time.process_time}
    seconds: dict[str, list[float]] = {name + clock: [] for name in ways for clock in clocks}
    whole: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            starts = [clock() for clock in clocks.values()]
            way(MANY)
            middles = [clock() for clock in clocks.values()]
            way(FEW)
            for start, middle, (said, clock) in zip(starts, middles, clocks.items(), strict=True):
                seconds[name + said].append((2 * middle - start - clock()) / (MANY - FEW))
            whole[name].append(middles[0] - starts[0])
    for name, found in seconds.items():
        print(f"{name}: {1e3 * statistics.median(found):.2f} ms a token, least {1e3 * min(found):.2f}")
    for name, found in whole.items():
        print(f"{name}: {1e3 * statistics.median(found):.0f} ms for all {MANY} tokens, least {1e3 * min(found):.0f}")


if __name__ == "__main__":
    main()
