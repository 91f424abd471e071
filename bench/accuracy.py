"""What formats of weights and activations cost a language model: its perplexity before and after `freeze`.

A small character model is trained here, in f32 and by stock XLA, on the language reference that every Python carries
(`pydoc_data.topics`): weights that were learned, not drawn. Then the same weights are frozen in each format, and all
predict the part of the text that none of them saw.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.text import Text

import hlo_dispatch
from hlo_dispatch.bench.generate import decoder
from hlo_dispatch.bench.generate.weights import Array, DecoderSize
from hlo_dispatch.freezing.reduced_precision import WEIGHT_FORMATS
from hlo_dispatch.report.terminal import make_table, row

FORMATS: tuple[tuple[str | None, str | None], ...] = (
    (None, None), ("bf16", None), ("int8", None), ("int8", "int8"), ("int4", None), ("int4", "int8"),
)  # fmt: skip
"""Of weights and of activations; None: as they are."""
LENGTH = 128
"""Characters of a sequence."""
BATCH = 16
_TRAINED = 0.9
"""Part of the text that the model is trained on."""
_RATE, _WARMUP, _DECAY = 3e-3, 20, 0.1
_FIRST, _SECOND, _SMALL = 0.9, 0.98, 1e-9
"""Adam's."""


@dataclass(frozen=True)
class AccuracyPlan:
    """How long the model is trained, and how much it predicts."""

    steps: int = 400
    batches: int = 16
    """Of the unseen text, spread over all of it."""
    layers: int = 3
    width: int = 256

    def size(self, vocabulary: int) -> DecoderSize:
        heads = self.width // 64
        return DecoderSize(self.layers, self.width, heads, max(1, heads // 2), self.width * 11 // 4, vocabulary)


def text() -> str:
    """The language reference of the Python that runs."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def run(plan: AccuracyPlan, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """One entry for each format, that of f32 first."""
    hlo_dispatch.install(policy="never")
    whole = text()
    characters = sorted(set(whole))
    tokens = np.searchsorted(np.array(characters), np.array(list(whole))).astype(np.int32)
    size = plan.size(len(characters))
    split = int(len(tokens) * _TRAINED)
    weights = _trained(size, plan.steps, tokens[:split], say)
    unseen = _spread(tokens[split:], plan.batches)
    for stored, activations in FORMATS:
        name = "f32" if stored is None else stored + (f", activations {activations}" if activations else "")
        hlo_dispatch.install(policy="heuristic" if stored else "never")
        say(f"{name}: predicting")
        if stored:
            predictions = jax.jit(decoder.predictions(size))
            predict = hlo_dispatch.freeze(predictions, weights, weights=stored, activations=activations)
        else:
            predict = jax.jit(lambda tokens: decoder.predictions(size)(weights, tokens))
        loss = float(np.mean([_loss(predict(batch[:, :-1]), batch[:, 1:]) for batch in unseen]))
        yield {
            "name": name, "type": str(WEIGHT_FORMATS[stored].dtype) if stored else "float32",
            "perplexity": math.exp(loss), "steps": plan.steps, "text": len(tokens),
            "parameters": sum(array.size for array in jax.tree.leaves(weights)),
            "characters": len(unseen) * BATCH * LENGTH,
        }  # fmt: skip


def _trained(size: DecoderSize, steps: int, tokens: Array, say: Callable[[str], None]) -> Any:
    """The weights after so many steps of Adam."""
    weights = decoder.parameters(size, "scan", "float32")
    moments = jax.tree.map(jnp.zeros_like, (weights, weights))
    random = np.random.default_rng(1)

    def mean_loss(weights: Any, batch: Any) -> Any:
        return _loss(decoder.predictions(size)(weights, batch[:, :-1]), batch[:, 1:])

    @jax.jit
    def step(weights: Any, moments: Any, number: Any, batch: Any) -> Any:
        loss, slopes = jax.value_and_grad(mean_loss)(weights, batch)
        first = jax.tree.map(lambda m, g: _FIRST * m + (1 - _FIRST) * g, moments[0], slopes)
        second = jax.tree.map(lambda m, g: _SECOND * m + (1 - _SECOND) * g * g, moments[1], slopes)
        progress = number / steps
        rate = _RATE * jnp.minimum(number / _WARMUP, 1.0) * (1 - (1 - _DECAY) * progress)
        corrected = jnp.sqrt(1 - _SECOND**number) / (1 - _FIRST**number)

        def moved(w: Any, m: Any, v: Any) -> Any:
            return w - rate * corrected * m / (jnp.sqrt(v) + _SMALL)

        return jax.tree.map(moved, weights, first, second), (first, second), loss

    for number in range(1, steps + 1):
        starts = random.integers(0, len(tokens) - LENGTH - 1, BATCH)
        batch = np.stack([tokens[start : start + LENGTH + 1] for start in starts])
        weights, moments, loss = step(weights, moments, jnp.float32(number), batch)
        if number % 50 == 0:
            say(f"step {number} of {steps}: a perplexity of {math.exp(float(loss)):.2f}")
    return jax.block_until_ready(weights)


def _loss(logits: Any, following: Any) -> Any:
    """The mean logarithm of what each character that follows was thought to be as likely as, negative."""
    likely = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.asarray(following)[..., None], -1)
    return -likely.mean()


def _spread(tokens: Array, batches: int) -> list[Array]:
    """Sequences at equal distances; each character but a sequence's first is predicted once."""
    starts = np.linspace(0, len(tokens) - LENGTH - 1, batches * BATCH).astype(int)
    sequences = np.stack([tokens[start : start + LENGTH + 1] for start in starts])
    return list(sequences.reshape(batches, BATCH, LENGTH + 1))


def print_accuracy(target: Console, entries: list[dict[str, Any]]) -> None:
    """Perplexities, and how far each is from that of f32."""
    table = make_table("weights", "perplexity", "change")
    for column in table.columns[1:]:
        column.justify = "right"
    plain = entries[0]["perplexity"]
    for entry in entries:
        change = "" if entry is entries[0] else f"{entry['perplexity'] / plain - 1:+.2%}"
        row(table, entry["name"], f"{entry['perplexity']:.4f}", change)
    target.print(table)
    first = entries[0]
    target.print(
        Text(
            f"A character model of {first['parameters'] / 1e6:.1f} million parameters, {first['steps']} steps of "
            f"{BATCH}x{LENGTH} characters of Python's language reference (pydoc_data.topics, {first['text']:,} "
            f"characters); it predicts {first['characters']:,} of those that it was not trained on."
        )
    )
