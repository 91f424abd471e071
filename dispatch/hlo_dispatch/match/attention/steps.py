"""Score step data type: the kernel's operations between the product of queries and keys and the softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.match.attention.masks import Mask
from hlo_dispatch.pattern.table import short


@dataclass(frozen=True)
class ScoreStep:
    """One score step, as the kernel's attributes describe it."""

    kind: str
    """scale, add, select, causal, window or softcap."""
    value: float = 0.0
    """The factor of a scale, or the value of masked scores."""
    view: View | None = None
    """The view of the operand of an add or a select."""
    mask: Mask | None = None
    """The mask of a causal step or a window."""

    @property
    def formula(self) -> str:
        """The formula template of the step, with `{}` for its operand."""
        if self.kind == "scale":
            return f"{short(self.value)}·{{}}"
        words = {"add": "{} + b", "softcap": "softcap({})", "select": "mask({})"}
        return words.get(self.kind, f"{self.kind}({{}})")


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


def attributes_of(step: ScoreStep, dimensions: dict[str, Any]) -> dict[str, Any]:
    """The kernel attributes of a step; `dimensions` describes the operand of a step that has one."""
    if step.mask is not None and step.mask.distance is not None and step.kind in ("causal", "window"):
        distance = step.mask.distance
        where = {"before": distance + 1} if step.kind == "window" else {"offset": distance}
        return {"kind": step.kind, **where, "value": float(step.value)}
    if step.kind == "add":
        return {"kind": "add", **dimensions}
    if step.kind == "select":
        return {"kind": "select", **dimensions, "value": float(step.value)}
    return {"kind": step.kind, "value": float(step.value)}
