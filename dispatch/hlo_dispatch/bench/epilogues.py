"""What may follow an operation in a pattern's name: the activations of the table, and its binaries by their use."""

from __future__ import annotations

from dataclasses import dataclass

CHANNEL, FULL = "channel", "full"


@dataclass(frozen=True)
class Step:
    """One step behind an operation."""

    name: str
    entry: str
    """The shipped table's activation or binary."""
    operand: str = ""
    """How its second operand lies over the result: channel or full; empty where it has none."""
    positive: bool = False
    """Whether it wants the values before it positive (or its operand, where it has one)."""

    @property
    def is_binary(self) -> bool:
        return bool(self.operand)


_BINARIES = (
    Step("bias", "add", CHANNEL),
    Step("residual", "add", FULL),
    Step("scale", "multiply", CHANNEL),
    Step("gate", "multiply", FULL),
    Step("mean", "subtract", CHANNEL),
    Step("difference", "subtract", FULL),
    Step("deviation", "divide", CHANNEL, positive=True),
    Step("quotient", "divide", FULL, positive=True),
    Step("maximum", "maximum", FULL),
    Step("minimum", "minimum", FULL),
)
_ACTIVATIONS = (
    "relu", "abs", "square", "exp", "round", "tanh", "sigmoid", "gelu_tanh", "gelu_erf", "mish", "clip", "leaky_relu",
    "elu", "swish", "softplus", "linear", "hard_sigmoid", "hard_swish",
)  # fmt: skip
_OF_POSITIVE = ("sqrt", "log", "pow")

STEPS: dict[str, Step] = {
    step.name: step
    for step in (
        *_BINARIES,
        *(Step(name, name) for name in _ACTIVATIONS),
        *(Step(name, name, positive=True) for name in _OF_POSITIVE),
    )
}
# Parameters that every framework's function is given; `clip` is relu6.
ELU_ALPHA = 1.0
LEAKY_SLOPE = 0.01
CLIP = (0.0, 6.0)
LINEAR = (0.125, 0.5)
POWER = (2.0, -0.5)
