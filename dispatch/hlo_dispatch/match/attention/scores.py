"""Score steps: matches the operations between the product of queries and keys and the softmax."""

from __future__ import annotations

import math

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import (
    PEEL_BROADCASTS,
    PEEL_CONVERTS_AND_LAYOUTS,
    PEEL_ROUNDING,
    PEEL_ROUNDING_AND_LAYOUTS,
)
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, operand_view
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.match.attention.axes import Axes
from hlo_dispatch.match.attention.axis_views import NotAttention, along_axes, peeled_along_axes
from hlo_dispatch.match.attention.masks import Mask, match_mask
from hlo_dispatch.match.attention.steps import ScoreStep

_PEEL_ADDENDS = PEEL_CONVERTS_AND_LAYOUTS | PEEL_BROADCASTS
_MAX_DEPTH = 64
# An addend of this size absorbs every usual score.
_ABSORBING = -1e30
# Numbers that round to minus infinity, by type.
_LOWEST = {"bf16": -3.396e38, "f16": -65519.0}


def producing_dot(scores: Node) -> Node | None:
    """The dot from which scores are computed elementwise; None: there is none."""
    return _paths_from_product(scores).get(scores)


def _paths_from_product(scores: Node) -> dict[Node, Node]:
    """Values that a dot reaches through elementwise instructions → that dot; the first operand's takes precedence."""
    found: dict[Node, Node] = {}
    done: set[Node] = set()
    pending = [scores]
    while pending and len(done) < _MAX_DEPTH:
        node = pending[-1]
        if node in done:
            pending.pop()
            continue
        waiting = [o for o in node.operands if o not in done and _may_lead(o, scores)] if node.opcode != "dot" else []
        if waiting:
            pending.append(waiting[0])
            continue
        pending.pop()
        done.add(node)
        if node.opcode == "dot":
            found[node] = node
            continue
        product = next((found[operand] for operand in node.operands if operand in found), None)
        if product is not None:
            found[node] = product
    return found


def _may_lead(node: Node, scores: Node) -> bool:
    known = node.opcode in ELEMENTWISE or node.opcode in PEEL_ROUNDING_AND_LAYOUTS or node.opcode == "dot"
    return known and node.shape.elements == scores.shape.elements and node.shape.element_type != "pred"


class Scores:
    """Matcher of one chain of score steps along given axes."""

    def __init__(self, axes: Axes, matched: dict[Node, None]) -> None:
        """`matched` collects the matched instructions."""
        self._axes, self._matched = axes, matched

    def read(self, scores: View) -> tuple[View, list[ScoreStep]]:
        """The product of queries and keys, and the steps behind it in execution order.

        Raises:
            NotAttention: the scores are something else; with the refusal that says what.
            AxisSplit: an axis is several.
        """
        ways = _paths_from_product(scores.node)
        steps: list[ScoreStep] = []
        view = scores
        while True:
            path = peeled_along_axes(view, PEEL_ROUNDING_AND_LAYOUTS)
            view = path[-1]
            self._matched.update((passed.node, None) for passed in path)
            if view.node.opcode == "dot":
                return view, steps[::-1]
            view, outer = self._step(view, ways)
            steps += outer[::-1]

    def _step(self, view: View, ways: dict[Node, Node]) -> tuple[View, list[ScoreStep]]:
        """The operand that leads to the product, and the score steps of the instruction."""
        node = view.node
        if node.opcode == "tanh":
            return self._operand(view, 0), [ScoreStep("softcap", 1.0)]
        if node.opcode == "negate":
            return self._operand(view, 0), [ScoreStep("scale", -1.0)]
        if node.opcode == "select":
            return self._select_steps(view, ways)
        main = next((number for number, operand in enumerate(node.operands) if operand in ways), None)
        if main is None or len(node.operands) != 2:
            raise self._unknown(node)
        number = scalar_constant(node.operands[1 - main])
        if number is not None and math.isfinite(number):
            if node.opcode == "multiply":
                return self._operand(view, main), [ScoreStep("scale", number)]
            if node.opcode == "divide" and main == 0 and number:
                return self._operand(view, main), [ScoreStep("scale", 1 / number)]
        if node.opcode == "add":
            return self._operand(view, main), self._addend_steps(self._operand(view, 1 - main))
        raise self._unknown(node)

    def _addend_steps(self, other: View) -> list[ScoreStep]:
        """The steps of an addend: a mask where it is 0 or absorbs every score, else an operand in memory."""
        path = peeled_along_axes(other, _PEEL_ADDENDS | PEEL_ROUNDING)
        last = path[-1]
        if last.node.opcode == "select":
            values = [scalar_constant(operand) for operand in last.node.operands[1:]]
            kept = next((number for number in (0, 1) if values[number] == 0), None)
            lost = None if kept is None else values[1 - kept]
            if lost is not None and lost <= _ABSORBING:
                masks = self._masks(self._operand(last, 0), keeps_true=kept == 0)
                rounded = any(lost < _LOWEST.get(passed.node.shape.element_type, lost) for passed in path)
                if masks is not None:
                    return [_masked(mask, -math.inf if rounded else lost) for mask in masks]
        return [ScoreStep("add", view=peeled_along_axes(other, _PEEL_ADDENDS)[-1])]

    def _select_steps(self, view: View, ways: dict[Node, Node]) -> tuple[View, list[ScoreStep]]:
        node = view.node
        main = next((number for number in (1, 2) if node.operands[number] in ways), None)
        value = None if main is None else scalar_constant(node.operands[3 - main])
        if main is None or value is None or math.isnan(value):
            raise self._unknown(node)
        masks = self._masks(self._operand(view, 0), keeps_true=main == 1)
        if masks is None:
            sentence = "scores are kept where a mask in memory is false, and the kernel keeps them where it is true"
            raise NotAttention(Refusal("attention-step", sentence, node.name))
        return self._operand(view, main), [_masked(mask, value) for mask in masks]

    def _masks(self, view: View, *, keeps_true: bool) -> list[Mask] | None:
        try:
            return match_mask(view, self._axes, keeps_true=keeps_true)
        except NotAttention:
            return None

    def _operand(self, view: View, number: int) -> View:
        found = along_axes(operand_view(view, view.node.operands[number]))
        if found is None:
            refusal = Refusal("layout-unsupported", "the scores' elements change places", view.node.name)
            raise NotAttention(refusal)
        return found

    def _unknown(self, node: Node) -> NotAttention:
        sentence = f"the scores go through %{node.name}, a step ({node.opcode}) that the kernel does not know"
        return NotAttention(Refusal("attention-step", sentence, node.name))


def _masked(mask: Mask, value: float) -> ScoreStep:
    if mask.distance is None:
        return ScoreStep("select", value, mask.view, mask)
    return ScoreStep("window" if mask.is_lower else "causal", value, mask=mask)
