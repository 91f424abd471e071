"""The models, the peers, and which of them go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_dispatch.bench.pattern import CaseError

PEERS: Mapping[str, str] = {
    "stock": "stock XLA",
    "ours": "hlo-dispatch",
    "ours-auto": "hlo-dispatch, frozen without asking",
    "ours-frozen": "hlo-dispatch, frozen",
    "xla-onednn": "XLA's oneDNN flags",
    "torch-compile": "torch.compile",
    "torch-frozen": "torch.compile, weights frozen",
    "openvino": "OpenVINO",
}
OURS = ("ours", "ours-auto", "ours-frozen")
DEFAULT_PEERS = ("stock", "ours", "ours-frozen", "xla-onednn", "torch-compile", "openvino")
DTYPES = ("f32", "bf16")


@dataclass(frozen=True)
class ModelEntry:
    """One model, built by the same name in JAX and in PyTorch."""

    name: str
    title: str
    batches: tuple[int, ...] = (1, 8)
    small: Mapping[str, int] = field(default_factory=dict[str, int])
    """Options that make it quick, for tests."""
    is_large: bool = False
    """Whether memory may not hold it once for each peer."""


MODELS: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        ModelEntry("resnet50", "Keras ResNet50, 224²", small={"size": 64}),
        ModelEntry("mobilenetv2", "Keras MobileNetV2, 224²", small={"size": 64}),
        ModelEntry("efficientnetb0", "Keras EfficientNetB0, 224²", small={"size": 64}),
        ModelEntry("convnexttiny", "Keras ConvNeXtTiny, 224²", small={"size": 64}),
        ModelEntry("densenet121", "Keras DenseNet121, 224²", small={"size": 64}),
        ModelEntry("inceptionv3", "Keras InceptionV3, 224²", small={"size": 96}),
        ModelEntry("mobilenetv3", "Keras MobileNetV3Large, 224²", small={"size": 64}),
        ModelEntry("xception", "Keras Xception, 224²", small={"size": 96}),
        ModelEntry("bert", "BERT-base, 128 tokens", small={"layers": 1, "tokens": 16}),
        ModelEntry("gpt2", "GPT-2, prefill of 128 tokens", small={"layers": 1, "tokens": 16}),
        ModelEntry("gpt2-1024", "GPT-2, prefill of 1024 tokens", (1,), small={"layers": 1, "tokens": 16}),
        ModelEntry("gpt2-decode", "GPT-2, one token behind 511", small={"layers": 1, "tokens": 16}),
        ModelEntry("t5-encoder", "T5-base encoder, 128 tokens", small={"layers": 1, "tokens": 16}),
        ModelEntry("whisper-encoder", "Whisper base encoder, 30 s", (1,), small={"layers": 1, "positions": 20}),
        ModelEntry("vit", "ViT-B/16, 224²", small={"layers": 1}),
        # Two is one image with guidance: the text and no text.
        ModelEntry("unet", "Stable Diffusion 1.4 UNet, 64²", (1, 2), small={"size": 8, "narrow": 1}, is_large=True),
        ModelEntry("text-encoder", "Stable Diffusion 1.4 text encoder", (1,), small={"layers": 1}),
        ModelEntry(
            "vae-decoder", "Stable Diffusion 1.4 VAE decoder, 512²", (1,), small={"size": 8, "narrow": 1}, is_large=True
        ),
    )
}


@dataclass(frozen=True)
class Job:
    """One configuration of one model."""

    model: str
    dtype: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.model} {self.dtype} batch {self.batch}"


def jobs(models: tuple[str, ...], dtypes: tuple[str, ...], batches: tuple[int, ...]) -> tuple[Job, ...]:
    """Everything that is meant; without batches each model's own.

    Raises:
        CaseError: there is no such model or element type.
    """
    for names, known, what in ((models, MODELS, "model"), (dtypes, DTYPES, "element type")):
        for name in names:
            if name not in known:
                raise CaseError(f"unknown {what} {name!r}: one of {', '.join(known)}")
    return tuple(
        Job(model, dtype, batch)
        for model in models or tuple(MODELS)
        for dtype in dtypes or DTYPES
        for batch in batches or MODELS[model].batches
    )
