"""Which attention layers of the models are one call: all of them, with what each one's scores go through."""

from __future__ import annotations

from collections import Counter

import pytest

import hlo_dispatch
from hlo_dispatch.bench.zoo.count import capture
from hlo_dispatch.bench.zoo.models import ZOO

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

# Small variant of the model: what becomes of q·kᵀ, how often.
LAYERS: dict[str, dict[str, int]] = {
    "bert": {"mask": 2},
    "bert-bf16": {"mask": 2},
    "gpt2": {"causal mask": 2},
    "vit": {"": 2},
    "vit-bf16": {"": 2},
    "t5": {"add": 4, "mask": 2},
    "clip": {"": 2, "causal mask": 2},
    "whisper-encoder": {"": 2},
    "whisper-encoder-bf16": {"": 2},
    "unet": {"": 8},
    "unet-bf16": {"": 8},
    "vae": {"": 2},
    "vae-bf16": {"": 2},
}
WORDS = {"causal(": "causal", "window(": "window", "softcap(": "softcap", "mask(": "mask", " + b": "add"}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_one_call(name: str) -> None:
    model = ZOO[name]
    for module in model.needs:
        pytest.importorskip(module)
    report = hlo_dispatch.rewrite(capture(model.lowered(**model.small)), policy="always").report
    layers = [region for region in report.regions if region.entry == "attention"]
    assert [str(region.refusal) for region in layers if not region.dispatched] == []
    assert [str(region.refusal) for region in report.left if region.opcode == "exponential"] == []
    taken = Counter(" ".join(word for sign, word in WORDS.items() if sign in region.formula) for region in layers)
    assert taken == LAYERS[name]


def test_a_training_step_keeps_its_attention_and_says_why() -> None:
    model = ZOO["bert-gradient"]
    for module in model.needs:
        pytest.importorskip(module)
    report = hlo_dispatch.rewrite(capture(model.lowered(**model.small)), policy="always").report
    codes = [
        region.refusal.code for region in report.left if region.opcode == "exponential" and region.refusal is not None
    ]
    assert codes == ["value-needed"] * 2
