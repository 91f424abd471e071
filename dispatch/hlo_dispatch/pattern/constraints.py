"""Constraints: predicates that a pattern puts on a matched value, each with one sentence for people.

A constraint is a pure function of a node of the flat graph and its argument. It is written in `where:` under
the value's name, or as a keyword inside the expression: `broadcast(scale, along=last)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from hlo_dispatch.pattern.constraint_arguments import (
    BUT_LAST,
    InvalidArgument,
    along,
    choice,
    dimension_list,
    dimensions,
    dtypes,
    flag,
    labels,
    name,
    number_or_range,
    whole_number,
)


class ConstraintContext(Protocol):
    """The matcher's state as a constraint sees it."""

    def constant(self, node: Any) -> float | None:
        """The value that all elements share, if it is known; else None."""
        ...

    def named(self, name: str) -> Any:
        """The node that a name of the pattern is bound to."""
        ...


@dataclass(frozen=True)
class Constraint:
    """One constraint of the language."""

    sentence: str
    """The requirement in words, with `{}` for the argument, for the reference and for messages."""
    read: Callable[[Any], Any]
    """Parses the argument; raises InvalidArgument with advice."""
    holds: Callable[[Any, Any, ConstraintContext], bool]
    operations: tuple[str, ...] = ()
    """The operations whose results it applies to; empty: any value."""
    names_value: bool = False
    """Whether the argument is the name of another value: it is checked when everything is bound."""
    takes: str = ""
    """Allowed arguments, for the reference, where the sentence does not tell; examples in ``."""


@dataclass(frozen=True)
class Condition:
    """A constraint with its argument, as one pattern requires it."""

    name: str
    argument: Any

    @property
    def constraint(self) -> Constraint:
        return CONSTRAINTS[self.name]

    def __str__(self) -> str:
        return self.constraint.sentence.format(_shown(self.argument))


REDUCERS: Mapping[str, tuple[str, float]] = {
    "reduce_add": ("add", 0.0),
    "reduce_maximum": ("maximum", -math.inf),
    "reduce_minimum": ("minimum", math.inf),
    "reduce_multiply": ("multiply", 1.0),
}
"""Operation of the language → what it reduces with, and that operation's neutral start value."""

PLACES = ("argmax", "argmin")
"""Operations of the language that give where a reduction's largest or smallest element is."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "broadcast": ("along",),
    "transpose": ("permutation",),
    "dot": ("product",),
    "convolution": ("labels", "window"),
    **{operation: ("along",) for operation in (*REDUCERS, *PLACES)},
}
"""Constraints without which an operation has no meaning."""


def _shown(argument: Any) -> str:
    if isinstance(argument, tuple):
        return ", ".join("any" if item is None else str(item) for item in argument)  # pyright: ignore
    return "any" if argument is None else str(argument)


def is_row_major(shape: Any) -> bool:
    """Whether the last dimension is the fastest, and so on; dimensions of one element are ignored."""
    order = [number for number in shape.minor_to_major if shape.dimensions[number] != 1]
    return order == sorted(order, reverse=True)


def _near(node: Any, expected: float, facts: ConstraintContext) -> bool:
    value = facts.constant(node)
    return value is not None and close(value, expected, node.shape.element_type)


def close(value: float, expected: float, element_type: str) -> bool:
    """Whether a constant of this element type equals `expected`, rounded to the type."""
    tolerance = {"bf16": 4e-3, "f16": 5e-4}.get(element_type, 1e-6)
    return value == expected or math.isclose(value, expected, rel_tol=tolerance)


def _between(node: Any, bounds: tuple[float, float], facts: ConstraintContext) -> bool:
    value = facts.constant(node)
    return value is not None and bounds[0] <= value <= bounds[1]


def _has_dimensions(node: Any, expected: tuple[int | None, ...], _: ConstraintContext) -> bool:
    have = node.shape.dimensions
    return len(have) == len(expected) and all(size in (None, got) for size, got in zip(expected, have, strict=True))


def _last(node: Any) -> int:
    return node.shape.dimensions[-1] if node.shape.dimensions else 1


def _along(node: Any, expected: tuple[int, ...] | str | None, _: ConstraintContext) -> bool:
    """Compares a broadcast's dimensions, or a reduction's reduced dimensions."""
    if expected is None:
        return True
    if node.opcode == "get-tuple-element":  # of PLACES: one of a reduction's two results
        node = node.operands[0]
        (named,), have = node.proto.dimensions, node.operands[0].shape.dimensions
        if cast("tuple[int, ...]", expected) == (-1,) and all(size == 1 for size in have[named:][1:]):
            return True  # `axis=1` of [1, N, 1] is along the last dimension, too
    is_broadcast = node.opcode != "reduce"
    have = (node if is_broadcast else node.operands[0]).shape.dimensions
    rank = len(have)
    numbers = _but_last(node, have) if expected == BUT_LAST else cast("tuple[int, ...]", expected)
    counted = [number % rank if -rank <= number < rank else -1 for number in numbers]
    if is_broadcast and node.opcode != "broadcast":
        # Along dimensions of one element XLA writes a bitcast: the operand's dimensions, and ones anywhere. A slice of
        # stacked weights has ones, too.
        sizes = [have[number] for number in counted if number >= 0]
        others = (size for number, size in enumerate(have) if number not in counted)
        return all(size == 1 for size in others) and _long(sizes) == _long(node.operands[0].shape.dimensions)
    named = list(node.proto.dimensions)
    # A broadcast may also permute; a reduction's dimensions have no order.
    return named == counted if is_broadcast else sorted(named) == sorted(counted)


def _long(sizes: Sequence[int]) -> list[int]:
    return [size for size in sizes if size != 1]


def _but_last(node: Any, have: tuple[int, ...]) -> tuple[int, ...]:
    """All dimensions but the last, without those of one element that a broadcast does not name."""
    named = node.proto.dimensions if node.opcode == "broadcast" else range(len(have))
    return tuple(number for number, size in enumerate(have[:-1]) if size != 1 or number in named)


def _permuted(node: Any, expected: tuple[int, ...] | None, _: ConstraintContext) -> bool:
    return expected is None or tuple(node.proto.dimensions) == expected


def _product(node: Any, kind: str, _: ConstraintContext) -> bool:
    """plain: (batch…, M, K) · (batch…, K, N); transposed: (batch…, M, K) · (batch…, N, K)."""
    if kind == "any":
        return True
    numbers = node.proto.dot_dimension_numbers
    left, right = (len(operand.shape.dimensions) for operand in node.operands)
    batch = list(range(len(numbers.lhs_batch_dimensions)))
    contracted = right - 2 if kind == "plain" else right - 1
    return (
        left == right == len(batch) + 2
        and list(numbers.lhs_batch_dimensions) == batch
        and list(numbers.rhs_batch_dimensions) == batch
        and list(numbers.lhs_contracting_dimensions) == [left - 1]
        and list(numbers.rhs_contracting_dimensions) == [contracted]
    )


def _labelled(node: Any, expected: str | None, _: ConstraintContext) -> bool:
    return expected is None or convolution_labels(node.proto.convolution_dimension_numbers) == expected


def convolution_labels(numbers: Any) -> str:
    """Dimension labels as HLO text writes them: `b01f_01io->b01f`."""
    parts: list[str] = []
    for first, second, first_at, second_at, spatial in (
        ("b", "f", numbers.input_batch_dimension, numbers.input_feature_dimension, numbers.input_spatial_dimensions),
        ("i", "o", numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension,
         numbers.kernel_spatial_dimensions),
        ("b", "f", numbers.output_batch_dimension, numbers.output_feature_dimension, numbers.output_spatial_dimensions),
    ):  # fmt: skip
        letters = {first_at: first, second_at: second} | {at: str(number) for number, at in enumerate(spatial)}
        parts.append("".join(letters[at] for at in sorted(letters)))
    return f"{parts[0]}_{parts[1]}->{parts[2]}"


def _window(node: Any, kind: str, _: ConstraintContext) -> bool:
    if kind == "any":
        return True
    plain = all(
        dimension.stride <= 1
        and dimension.padding_low == dimension.padding_high == 0
        and dimension.window_dilation <= 1
        and dimension.base_dilation <= 1
        and (not dimension.window_reversal or dimension.size == 1)
        for dimension in node.proto.window.dimensions
    )
    return plain and node.proto.feature_group_count <= 1 and node.proto.batch_group_count <= 1


_ONE_OF_PRODUCTS = choice("plain", "transposed", "any")
_DEPENDS = ("broadcast", *REDUCERS, *PLACES)

CONSTRAINTS: Mapping[str, Constraint] = {
    "along": Constraint(
        "is along {}", along, _along, _DEPENDS,
        takes="the numbers of the result's dimensions that the operand's become (of a broadcast), or of the operand's "
        "that disappear (of a reduction), `[0, 2]`, from the back where negative, `[-1]`; `last` for the last one, "
        "`but_last` for all others, `any` where the kernel asks",
    ),
    "any_layout": Constraint(
        "may lie in memory in any order (operands and results are row-major otherwise)",
        flag, lambda node, argument, facts: True,
    ),
    "constant": Constraint(
        "is one number that is known when the program is compiled",
        flag, lambda node, argument, facts: facts.constant(node) is not None,
    ),
    "constant_between": Constraint("is a constant between {}", number_or_range(2), _between, takes="`[0, 0.5]`"),
    "constant_near": Constraint("is the constant {}", number_or_range(1), _near),
    "dimensions": Constraint(
        "has the dimensions {}", dimensions, _has_dimensions, takes="a size for each, or any, `[any, 64]`"
    ),
    "dtype": Constraint(
        "has an element type of {}", dtypes, lambda node, argument, facts: node.shape.element_type in argument,
        takes="one, `f32`, or several, `[f32, bf16]`",
    ),
    "in_memory": Constraint(
        "is in memory already", flag, lambda node, argument, facts: node.top_level_id is not None
    ),
    "labels": Constraint(
        "has the dimension labels {}", labels, _labelled, ("convolution",),
        takes="as HLO text writes them, `b01f_01io->b01f`, or `any`",
    ),
    "last_dimension": Constraint(
        "has a last dimension of {}", whole_number, lambda node, argument, facts: _last(node) == argument
    ),
    "last_dimension_at_least": Constraint(
        "has a last dimension of at least {}", whole_number, lambda node, argument, facts: _last(node) >= argument
    ),
    "last_dimension_multiple_of": Constraint(
        "has a last dimension that is a multiple of {}",
        whole_number, lambda node, argument, facts: argument > 0 and _last(node) % argument == 0,
    ),
    "permutation": Constraint(
        "has the permutation {}", dimension_list, _permuted, ("transpose",),
        takes="the operand's dimension for each of the result's, `[0, 2, 1]`, or `any`",
    ),
    "product": Constraint(
        "is a product of the form {}", _ONE_OF_PRODUCTS, _product, ("dot",),
        takes="`plain`: rows by columns, `transposed`: rows by rows, or `any`",
    ),
    "rank": Constraint(
        "has the rank {}", whole_number, lambda node, argument, facts: len(node.shape.dimensions) == argument
    ),
    "rank_at_least": Constraint(
        "has a rank of at least {}", whole_number, lambda node, argument, facts: len(node.shape.dimensions) >= argument
    ),
    "row_major": Constraint(
        "lies in memory with its last dimension fastest",
        flag, lambda node, argument, facts: is_row_major(node.shape),
    ),
    "same_dtype_as": Constraint(
        "has the element type of {}", name,
        lambda node, argument, facts: node.shape.element_type == facts.named(argument).shape.element_type,
        names_value=True,
    ),
    "same_shape_as": Constraint(
        "has the dimensions of {}", name,
        lambda node, argument, facts: node.shape.dimensions == facts.named(argument).shape.dimensions,
        names_value=True,
    ),
    "single_use": Constraint(
        "is used once", flag, lambda node, argument, facts: len(node.users) == 1 and not node.is_live_out
    ),
    "size_at_least": Constraint(
        "has at least {} elements", whole_number, lambda node, argument, facts: node.shape.elements >= argument
    ),
    "size_at_most": Constraint(
        "has at most {} elements", whole_number, lambda node, argument, facts: node.shape.elements <= argument
    ),
    "window": Constraint(
        "has a window of the form {} (plain: stride 1, no padding, dilation or groups)",
        choice("plain", "any"), _window, ("convolution",), takes="`plain` or `any`",
    ),
}  # fmt: skip
"""The whole vocabulary, by name."""

__all__ = [
    "CONSTRAINTS",
    "PLACES",
    "REDUCERS",
    "REQUIRED",
    "Condition",
    "Constraint",
    "ConstraintContext",
    "InvalidArgument",
    "close",
    "is_row_major",
]
