"""Fused anchors: an anchor op with the part of its epilogue that one kernel call computes, in that call's terms."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import HALF_TYPES, Dimension, View
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.epilogue.integers import without_rounding
from hlo_dispatch.match.epilogue.steps import Chain, PostOp, Step, rounded_alike
from hlo_dispatch.match.equal_matches import Facts, facts_of, once_for_equal_matches
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES

_BIAS_TYPES = frozenset(("f32", "bf16"))


@dataclass(eq=False)
class FusedAnchor:
    """An anchor op and the first steps of its epilogue chain."""

    anchor: Anchor
    chain: Chain
    step_count: int
    """Number of leading chain steps that the kernel call includes."""
    extra_reads: tuple[Node, ...] = ()
    """Values from which operands are computed, where a variant adds instructions that compute them."""
    static: AbstractSet[Node] = frozenset()
    """The static values of the computation."""
    steps: tuple[Step, ...] = field(init=False, repr=False)
    """The steps that the kernel call includes."""
    destination: tuple[Dimension, ...] = field(init=False, repr=False)
    """The primitive's result dimensions over the buffer of `output`."""
    output: Node = field(init=False, repr=False)
    """The value that the kernel call produces."""
    _post_ops: tuple[PostOp, ...] = field(init=False, repr=False)
    """Every post-op, the bias included."""
    _facts: Facts | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        anchor, steps = self.anchor, self.chain.steps
        self.steps = steps = steps if self.step_count == len(steps) else steps[: self.step_count]
        self.destination = steps[-1].destination if steps else anchor.destination
        self.output = steps[-1].nodes[-1] if steps else anchor.result
        first = (anchor.leading_post_op,) if anchor.leading_post_op is not None else ()
        self._post_ops = (*first, *[post_op for step in steps for post_op in step.post_ops])

    @property
    def has_static_weights(self) -> bool:
        return self.anchor.weights is not None and self.anchor.weights.node in self.static

    def epilogue_end(self, epilogue_refusal: Refusal | None, *, details: bool) -> tuple[str, str]:
        """The instruction at which the chain ended, or from which the kernel refused it."""
        chain = self.chain
        if epilogue_refusal is not None:
            # If no step is left out, the kernel refused the slice of the anchor's value.
            last = chain.steps[self.step_count].nodes[0] if self.step_count < len(chain.steps) else chain.stopped_at
            return last.name if last is not None else "", str(epilogue_refusal)
        why = chain.explanation() if details else chain.why
        return (chain.stopped_at.name if chain.stopped_at is not None else ""), why

    def shortened(self) -> FusedAnchor | None:
        """The same anchor with a shorter epilogue; None: it is the bare anchor op already."""
        steps = self.chain.steps
        if self.step_count == 0:
            unsliced = self.anchor.unsliced
            return None if unsliced is None else replace(self, anchor=unsliced, chain=_ends_at_slice(self.anchor))
        count = self.step_count - 1
        # Without the post-op, a step in front of it that only renames the value gains nothing either.
        while count and not steps[count - 1].post_ops and steps[count - 1].destination == self.destination:
            if self._is_all_half(steps[count - 1]):
                break
            count -= 1
        return replace(self, step_count=rounded_alike(steps, count))

    def _is_all_half(self, step: Step) -> bool:
        """Whether a kernel without weights reads and writes half precision with this step."""
        kind = step.result.shape.element_type
        return self.anchor.weights is None and kind in HALF_TYPES and kind == self.anchor.source.element_type

    @property
    def covered(self) -> tuple[Node, ...]:
        """Every instruction that the kernel call replaces."""
        return (self.anchor.node, *self.anchor.covers, *[node for step in self.steps for node in step.nodes])

    @cached_property
    def bias(self) -> PostOp | None:
        """The first post-op, if the primitive can take it as its bias: a vector along the channels."""
        if not self._post_ops or self.anchor.weights is None:
            return None
        first = self._post_ops[0]
        view = first.operand
        if first.kind != "binary" or first.algorithm != "add" or view is None or view.element_type not in _BIAS_TYPES:
            return None
        channel = self.anchor.channel
        sizes = view.sizes
        along_channel = sizes[channel] == self.anchor.destination[channel][0]
        elsewhere = any(size != 1 for number, size in enumerate(sizes) if number != channel)
        contiguous = view.strides[channel] == 1
        return first if along_channel and contiguous and not elsewhere else None

    @cached_property
    def post_ops(self) -> tuple[PostOp, ...]:
        """The post-ops after the bias, without the rounding that a store of integers implies."""
        post_ops = self._post_ops[1:] if self.bias is not None else self._post_ops
        kind = self.output.shape.element_type
        return without_rounding(post_ops, kind) if kind in INTEGER_TYPES else post_ops

    @property
    def operands(self) -> dict[str, View]:
        """The kernel call's operands by their roles, in order: the anchor's, bias, then each binary post-op's."""
        operands = self.anchor.operands
        if not self._post_ops:
            return operands
        if self.bias is not None and self.bias.operand is not None:
            operands["bias"] = self.bias.operand
        for number, post_op in enumerate(self.post_ops):
            if post_op.operand is not None:
                operands[f"post_op_{number}"] = post_op.operand
        return operands

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The kernel call's attributes, as far as they follow from the anchor."""
        anchor, operands = self.anchor, self.anchor.operands
        destination = anchor.roles[2]
        attributes: dict[str, Any] = {f"{role}_type": view.element_type for role, view in operands.items()}
        attributes[f"{destination}_type"] = self.output.shape.element_type
        for role, view in operands.items():
            attributes[f"{role}_dims"], attributes[f"{role}_strides"] = view.sizes, view.strides
        attributes[f"{destination}_dims"] = [size for size, _ in self.destination]
        attributes[f"{destination}_strides"] = [stride for _, stride in self.destination]
        attributes.update(anchor.attributes)
        for step in self.steps:
            attributes.update(step.attributes)
        if self.bias is not None and self.bias.operand is not None:
            attributes["bias_type"] = self.bias.operand.element_type
        for number, post_op in enumerate(self.post_ops):
            attributes[f"post_op_{number}"] = _post_op_attributes(post_op)
        return _in_a_batch_of_one(attributes) if self._has_numbers_per_row else attributes

    @property
    def facts(self) -> Facts:
        """What is known of equal ones."""
        facts = self._facts
        if facts is None:  # not a cached property: those of Python 3.11 take a lock
            entry = self.anchor.entry
            facts = self._facts = facts_of((id(entry), *self.signature))
            facts["entry"] = entry  # so that no other one gets its address
        return facts

    @property
    def signature(self) -> tuple[object, ...]:
        """All that attributes, formula and cost model depend on: equal signatures have equal ones."""
        anchor, steps = self.anchor, self.steps
        views = (anchor.source, anchor.weights, anchor.scales, anchor.zeros, *anchor.extra_sources)
        of_steps = [step.attributes for step in steps if step.attributes]
        return (
            anchor.node.opcode,
            anchor.node.operands[0].shape.element_type,
            anchor.roles,
            anchor.channel,
            anchor.multiply_adds,
            anchor.formula,
            str(anchor.attributes) if anchor.attributes else "",
            str(of_steps) if of_steps else "",
            self.output.shape,
            anchor.destination,
            self.destination,
            self.has_static_weights,
            tuple([view and (view.node.shape.element_type, view.dimensions) for view in views]),
            tuple([_signature(post_op) for post_op in self._post_ops]),
        )

    @property
    def _has_numbers_per_row(self) -> bool:
        """Whether a 2-D matrix product has a post-op operand with one number per row."""
        if self.anchor.node.opcode != "dot" or len(self.destination) != 2:
            return False
        operands = [post_op.operand.sizes for post_op in self.post_ops if post_op.operand is not None]
        return any(rows > 1 == columns for rows, columns in operands) and self.destination[1][0] > 1

    @property
    @once_for_equal_matches
    def formula(self) -> str:
        """The formula of the kernel call, for people: `relu((conv(x, w) + b) · v1)`."""
        text = self.anchor.formula or ("conv(x, w)" if self.anchor.node.opcode == "convolution" else "x @ w")
        count = 0
        for post_op in self._post_ops:
            operand = ""
            if post_op is self.bias:
                operand = "b"
            elif post_op.operand is not None:
                count += 1
                operand = f"{'v' if _is_narrow(post_op.operand, self.anchor) else 'r'}{count}"
            # A function's own parentheses make those of a sum inside it redundant.
            is_function = post_op.operand is None and post_op.formula != "{}"
            argument = text[1:-1] if is_function and text.startswith("(") else text
            text = post_op.formula.replace("{operand}", operand).replace("{}", argument)
        return text[1:-1] if text.startswith("(") and self._post_ops[-1].operand is not None else text


def _ends_at_slice(anchor: Anchor) -> Chain:
    """The chain of the full value, which ends at the slice that the kernel does not compute alone."""
    epilogue_refusal = next(node for node in anchor.covers if node.opcode == "slice")
    return Chain((), epilogue_refusal, "the kernel does not compute the slice that follows alone")


def _is_narrow(view: View, anchor: Anchor) -> bool:
    return any(size == 1 != full_size for size, (full_size, _) in zip(view.sizes, anchor.destination, strict=True))


def _in_a_batch_of_one(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a matrix product with a leading batch dimension of one.

    oneDNN repeats one number along each row in products of three dimensions and more; in one of two dimensions it
    would fall to its reference implementation.
    """
    batched: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, dict):
            batched[name] = _in_a_batch_of_one(cast("dict[str, Any]", value))
        elif name.endswith("dims"):
            batched[name] = [1, *value]
        elif name.endswith("strides"):
            sizes = attributes[name.removesuffix("strides") + "dims"]
            batched[name] = [max(size * stride for size, stride in zip(sizes, value, strict=True)), *value]
        else:
            batched[name] = value
    return batched


def _signature(post_op: PostOp) -> tuple[object, ...]:
    view = post_op.operand
    if view is None:
        return post_op.algorithm, post_op.formula, str(post_op.alpha), str(post_op.beta)  # 0 is not -0
    return post_op.algorithm, post_op.formula, view.element_type, view.dimensions


def _post_op_attributes(post_op: PostOp) -> dict[str, Any]:
    if post_op.operand is None:
        return {
            "kind": "eltwise",
            "algorithm": post_op.algorithm,
            "alpha": float(post_op.alpha),
            "beta": float(post_op.beta),
        }
    return {
        "kind": "binary",
        "algorithm": post_op.algorithm,
        "type": post_op.operand.element_type,
        "dims": post_op.operand.sizes,
        "strides": post_op.operand.strides,
    }
