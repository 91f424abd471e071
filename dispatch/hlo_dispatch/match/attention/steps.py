"""Score step data type: the kernel's operations between the product of queries and keys and the softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.match.attention.masks import Mask


@dataclass(frozen=True)
class ScoreStep:
    """One score step; the table says of each kind how the kernel is told."""

    kind: str
    value: float = 0.0
    """The factor of a scale, or the value of masked scores."""
    view: View | None = None
    """The view of its operand in memory."""
    mask: Mask | None = None
    """The mask of a select, a causal step or a window."""


def simplified(steps: Sequence[ScoreStep]) -> tuple[ScoreStep, ...]:
    """The steps with adjacent scales merged, and the scales around a tanh merged into a soft cap."""
    found: list[ScoreStep] = []
    for step in steps:
        if step.kind == "scale" and found and found[-1].kind == "scale":
            step = ScoreStep("scale", found.pop().value * step.value)
        if step.kind == "scale" and step.value == 1:
            continue
        found.append(step)
    index = 1
    while index < len(found) - 1:
        before, cap, behind = found[index - 1 : index + 2]
        is_capped = cap.kind == "softcap" and cap.value == 1 and before.kind == behind.kind == "scale"
        # scale(a), tanh, scale(c) is scale(a·c), then c·tanh(s / c).
        if is_capped and behind.value > 0:
            scale = before.value * behind.value
            near = abs(scale - 1) < 1e-6
            found[index - 1 : index + 2] = [
                *([] if near else [ScoreStep("scale", scale)]),
                ScoreStep("softcap", behind.value),
            ]
        index += 1
    return tuple(found)
