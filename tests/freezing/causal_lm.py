"""A small language model with what KerasHub's CausalLM has around `generate`, for tests where KerasHub is missing."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

VOCABULARY = 64


class Sampler:
    """Draws tokens with a seed that advances."""

    def __init__(self) -> None:
        self.seeds = keras.random.SeedGenerator(3)

    @property
    def variables(self) -> list[Any]:
        return [self.seeds.state]

    def __call__(self, logits: Any) -> Any:
        return keras.random.categorical(logits, 1, seed=self.seeds)[:, 0]


class Greedy:
    """Takes the likeliest token, or one behind it."""

    variables = ()

    def __init__(self) -> None:
        self.behind = 0

    def __call__(self, logits: Any) -> Any:
        return (ops.argmax(logits, -1) + self.behind) % VOCABULARY


class CausalLM(keras.Model):
    """Predicts a token from the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = layers.Embedding(VOCABULARY, 16), layers.Dense(VOCABULARY)
        self.sampler: Any = None
        self.generate_function: Any = None
        self(np.zeros((1, 1), np.int32))

    def call(self, tokens: Any) -> Any:
        return self.head(self.table(tokens))

    def compile(self, sampler: Any) -> None:
        self.sampler, self.generate_function = sampler, None

    def generate_step(self, inputs: Any, stop_token_ids: Any = None) -> Any:
        tokens, mask = inputs["token_ids"], inputs["padding_mask"]
        for position in range(1, tokens.shape[1]):
            token = ops.cast(self.sampler(self(tokens[:, position - 1])), tokens.dtype)
            token = ops.where(mask[:, position], tokens[:, position], token)
            tokens = ops.slice_update(tokens, (0, position), token[:, None])
        return {"token_ids": tokens, "padding_mask": ops.ones_like(mask), "images": None}

    def make_generate_function(self) -> Any:
        self.generate_function = self.generate_function or self.generate_step
        return self.generate_function

    def generate(self, inputs: Any, stop_token_ids: Any = None) -> Any:
        outputs = self.make_generate_function()(inputs, stop_token_ids=stop_token_ids)
        return {"token_ids": np.asarray(outputs["token_ids"])}
