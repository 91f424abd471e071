"""`generate` of frozen language models: the tokens of the model's own, seeds included.

KerasHub needs TensorFlow to be installed, which the tests' environment does not have: a model of ours that follows its
protocol (`causal_lm.py`) stands for it, and its own run where it is there (`pip install --no-deps keras-hub`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch import FreezeError

os.environ.setdefault("KERAS_BACKEND", "jax")
PROMPT = {
    "token_ids": np.array([[5, 9, 2, 0, 0, 0, 0, 0], [3, 7, 0, 0, 0, 0, 0, 0]], np.int32),
    "padding_mask": np.arange(8) < np.array([[3], [2]]),
    "images": np.zeros((2, 1), np.float32),
}
"""Without a preprocessor Gemma3 returns the images, also where it reads none."""
IDS = np.array([[5, 9, 2], [3, 7, 1]], np.int32)


def llama3(keras_hub: Any) -> Any:
    backbone = keras_hub.models.Llama3Backbone(
        vocabulary_size=64, num_layers=2, num_query_heads=4, num_key_value_heads=2, hidden_dim=32, intermediate_dim=48
    )
    return keras_hub.models.Llama3CausalLM(backbone=backbone, preprocessor=None)


def gemma3(keras_hub: Any) -> Any:
    backbone = keras_hub.models.Gemma3Backbone(
        vocabulary_size=64, image_size=16, num_layers=2, num_query_heads=4, num_key_value_heads=2, hidden_dim=32,
        intermediate_dim=48, head_dim=8, use_sliding_window_attention=True, sliding_window_size=4, vision_encoder=None,
    )  # fmt: skip
    return keras_hub.models.Gemma3CausalLM(backbone=backbone, preprocessor=None)


def protocol(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("keras")
    import causal_lm

    monkeypatch.setitem(sys.modules, "keras_hub.models", SimpleNamespace(CausalLM=causal_lm.CausalLM))
    return causal_lm.CausalLM()


@pytest.fixture(params=["protocol", "llama3", "gemma3"])
def keras_lm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "protocol":
        return protocol(monkeypatch)
    return {"llama3": llama3, "gemma3": gemma3}[request.param](pytest.importorskip("keras_hub"))


def samplers(lm: Any) -> list[Any]:
    """A greedy one, and one with a seed; of KerasHub all that its model samples with."""
    if not type(lm).__module__.startswith("keras_hub"):
        import causal_lm

        return [causal_lm.Greedy(), causal_lm.Sampler()]
    hub = sys.modules["keras_hub"].samplers
    found = [hub.GreedySampler(), hub.TopKSampler(5, seed=1), hub.TopPSampler(0.5, seed=1), hub.RandomSampler(seed=1)]
    # KerasHub 0.32 fails at beams of Gemma3 itself.
    return found if "Gemma3" in type(lm).__name__ else [*found, hub.BeamSampler(2)]


def seeds(lm: Any) -> list[Any]:
    return [np.asarray(variable.value) for variable in lm.sampler.variables]


def test_kerashub(keras_lm: Any) -> None:
    lm = keras_lm
    fast = hlo_dispatch.freeze(lm)
    for sampler in samplers(lm):
        lm.compile(sampler=sampler)
        before = seeds(lm)
        wanted = [lm.generate(PROMPT, stop_token_ids=None)["token_ids"] for _ in range(2)]
        after, own = seeds(lm), lm.generate_function
        for variable, seed in zip(sampler.variables, before, strict=True):
            variable.assign(seed)
        for tokens in wanted:
            np.testing.assert_array_equal(fast.generate(PROMPT, stop_token_ids=None)["token_ids"], tokens)
        np.testing.assert_array_equal(seeds(lm), after)
        assert lm.generate_function is own, "the model's own function stays"
    assert len(fast.report.programs) == len(samplers(lm)), "one program for each sampler"
    lm.compile(sampler=sampler)
    lm.set_weights([weight * 1.5 + 0.01 for weight in lm.get_weights()])
    stop = lm.generate(PROMPT, stop_token_ids=None)["token_ids"][:, 4]
    fast.update(lm)
    for stop_token_ids in (None, stop.tolist()):
        state = seeds(lm)
        wanted = lm.generate(PROMPT, stop_token_ids=stop_token_ids)["token_ids"]
        for variable, seed in zip(sampler.variables, state, strict=True):
            variable.assign(seed)
        np.testing.assert_array_equal(fast.generate(PROMPT, stop_token_ids=stop_token_ids)["token_ids"], wanted)


def test_kerashub_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights are nowhere else, and text still goes in and out."""
    lm = protocol(monkeypatch)
    lm.compile(sampler=samplers(lm)[0])
    wanted = lm.generate(PROMPT)["token_ids"]
    fast = hlo_dispatch.freeze(lm, donate=True)
    np.testing.assert_array_equal(fast.generate(PROMPT)["token_ids"], wanted)
    assert all(variable.value.is_deleted() for variable in lm.variables)
    del lm
    np.testing.assert_array_equal(fast.generate(PROMPT)["token_ids"], wanted)


@pytest.mark.parametrize("donate", [False, True])
def test_kerashub_updated_to_another_model(monkeypatch: pytest.MonkeyPatch, donate: bool) -> None:
    """Nothing is compiled again, and text goes through the new one."""
    first, second = protocol(monkeypatch), protocol(monkeypatch)
    sampler = samplers(first)[0]
    for lm in (first, second):
        lm.compile(sampler)
    wanted = second.generate(PROMPT)["token_ids"]
    fast = hlo_dispatch.freeze(first, donate=donate)
    assert not np.array_equal(fast.generate(PROMPT)["token_ids"], wanted)
    fast.update(second)
    del first
    np.testing.assert_array_equal(fast.generate(PROMPT)["token_ids"], wanted)
    assert len(fast.report.programs) == 1
    assert all(variable.value.is_deleted() for variable in second.variables) == donate


@pytest.fixture(scope="module")
def flax_lm() -> Callable[..., Any]:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("transformers.modeling_flax_utils")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=32,
    )  # fmt: skip
    return lambda seed=0, **options: transformers.FlaxLlamaForCausalLM(config, seed=seed, **options)


def test_flax(flax_lm: Callable[..., Any]) -> None:
    model = flax_lm()
    fast = hlo_dispatch.freeze(model)
    padded = {"attention_mask": np.array([[1, 1, 1], [0, 1, 1]], np.int32), "pad_token_id": 0}
    sampled = {"max_new_tokens": 5, "do_sample": True, "top_k": 9, "prng_key": jax.random.PRNGKey(3)}
    for options in ({"max_new_tokens": 5, **padded}, sampled):
        wanted = model.generate(IDS, **options).sequences
        for _ in range(2):
            np.testing.assert_array_equal(fast.generate(IDS, **options).sequences, wanted)
    assert len(fast.report.programs) == 2
    model.generation_config.eos_token_id = int(wanted[0, 4])
    model.generation_config.pad_token_id = 0
    wanted, other = model.generate(IDS, **sampled).sequences, sampled | {"prng_key": jax.random.PRNGKey(4)}
    np.testing.assert_array_equal(fast.generate(IDS, **sampled).sequences, wanted)
    np.testing.assert_array_equal(fast.generate(IDS, **other).sequences, model.generate(IDS, **other).sequences)
    assert len(fast.report.programs) == 3, "a key is an argument, the model's configuration is part of the program"
    new = flax_lm(1)
    fast.update(new)
    np.testing.assert_allclose(fast(IDS).logits, new(IDS).logits, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(
        fast.generate(IDS, max_new_tokens=5, **padded).sequences,
        new.generate(IDS, max_new_tokens=5, **padded).sequences,
    )


class Penalty:
    """A processor of logits that a user writes."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: Any, scores: Any, cur_len: Any) -> Any:
        return scores.at[:, self.token].set(-1e9)


def test_flax_with_a_processor(flax_lm: Callable[..., Any]) -> None:
    """It is part of the program: one that is changed is another."""
    model = flax_lm()
    fast = hlo_dispatch.freeze(model)
    penalty = Penalty(0)
    processors = sys.modules["transformers"].FlaxLogitsProcessorList([penalty])
    options = {"max_new_tokens": 4, "pad_token_id": 0, "logits_processor": processors}
    penalty.token = int(fast.generate(IDS, **options).sequences[0, 3])
    own = jax.jit(lambda params: model.generate(IDS, params=params, **options).sequences)
    wanted = np.asarray(own(model.params))
    assert penalty.token not in wanted[:, 3:]
    for _ in range(2):
        np.testing.assert_array_equal(fast.generate(IDS, **options).sequences, wanted)
    assert len(fast.report.programs) == 2


def test_refusals(flax_lm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = flax_lm()
    fast = hlo_dispatch.freeze(model)
    for option in ({"trace": False}, {"params": model.params}):
        with pytest.raises(FreezeError, match="leave `"):
            fast.generate(IDS, **option)
    for method in (model.generate, protocol(monkeypatch).generate):
        with pytest.raises(FreezeError, match=r"freeze\(model\)\.generate"):
            hlo_dispatch.freeze(method)
    with pytest.raises(FreezeError, match=r"freeze\(lambda params, ids: .*\.sequences, params\)"):
        hlo_dispatch.freeze(flax_lm(_do_init=False))
    closed = hlo_dispatch.freeze(lambda ids: model(ids).logits)
    with pytest.raises(FreezeError, match="freeze the function that generates"):
        closed.generate(IDS)
    with pytest.raises(FreezeError, match="give the weights as an argument"):
        closed.update(model.params)


def test_a_sampler_that_is_changed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = protocol(monkeypatch)
    sampler = sys.modules["causal_lm"].Greedy()
    lm.compile(sampler)
    fast = hlo_dispatch.freeze(lm)
    first = fast.generate(PROMPT)["token_ids"]
    sampler.behind = 3
    lm.compile(sampler)
    wanted = lm.generate(PROMPT)["token_ids"]
    assert not np.array_equal(first, wanted)
    np.testing.assert_array_equal(fast.generate(PROMPT)["token_ids"], wanted)


def test_threads_draw_with_seeds_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = protocol(monkeypatch)
    lm.compile(sys.modules["causal_lm"].Sampler())
    fast = hlo_dispatch.freeze(lm)
    fast.generate(PROMPT)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: fast.generate(PROMPT)["token_ids"].tobytes(), range(24)))
    assert len(set(found)) == len(found)


def test_generate_inside_of_a_jitted_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = protocol(monkeypatch)
    lm.compile(sys.modules["causal_lm"].Sampler())
    fast = hlo_dispatch.freeze(lm)
    with pytest.raises(FreezeError, match=r"outside of jax\.jit"):
        jax.jit(lambda x: x + fast.generate(PROMPT)["token_ids"])(1)
    fast.generate(PROMPT)
