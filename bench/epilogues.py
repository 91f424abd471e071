"""Epilogue steps in a pattern's name: the activations of the table, and its binaries by their use."""

from __future__ import annotations

from dataclasses import dataclass

CHANNEL, FULL = "channel", "full"


@dataclass(frozen=True)
class BenchStep:
    """One step behind an operation."""

    name: str
    entry: str
    """The shipped table's activation or binary."""
    operand: str = ""
    """Broadcast of its second operand over the result: channel or full; empty where it has none."""
    positive: bool = False
    """Whether it requires positive values (or a positive operand, where it has one)."""

    @property
    def is_binary(self) -> bool:
        return bool(self.operand)


_BINARIES = (
    BenchStep("bias", "add", CHANNEL),
    BenchStep("residual", "add", FULL),
    BenchStep("scale", "multiply", CHANNEL),
    BenchStep("gate", "multiply", FULL),
    BenchStep("mean", "subtract", CHANNEL),
    BenchStep("difference", "subtract", FULL),
    BenchStep("deviation", "divide", CHANNEL, positive=True),
    BenchStep("quotient", "divide", FULL, positive=True),
    BenchStep("maximum", "maximum", FULL),
    BenchStep("minimum", "minimum", FULL),
)
_ACTIVATIONS = (
    "relu", "abs", "square", "exp", "round", "tanh", "sigmoid", "gelu_tanh", "gelu_erf", "mish", "clip", "leaky_relu",
    "elu", "swish", "softplus", "linear", "hard_sigmoid", "hard_swish",
)  # fmt: skip
_OF_POSITIVE = ("sqrt", "log", "pow")

STEPS: dict[str, BenchStep] = {
    step.name: step
    for step in (
        *_BINARIES,
        *(BenchStep(name, name) for name in _ACTIVATIONS),
        *(BenchStep(name, name, positive=True) for name in _OF_POSITIVE),
    )
}
# Parameters that every framework's function is given; `clip` is relu6.
ELU_ALPHA = 1.0
LEAKY_SLOPE = 0.01
CLIP = (0.0, 6.0)
LINEAR = (0.125, 0.5)
POWER = (2.0, -0.5)
