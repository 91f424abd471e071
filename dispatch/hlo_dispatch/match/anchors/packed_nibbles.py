"""Packed nibbles: bytes with two unsigned numbers of four bits each, as a program takes them apart.

    concatenate(p & 15, p >> 4)          (p >> [0, 4]) & 15

along any dimension, followed by a reshape. Along the dimension whose bytes are adjacent, a block of numbers has its
first half in the lower bits of as many bytes, and its second half in the upper bits: a block of two where neighbours
share a byte, of 32 in GGUF's Q4_0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_BROADCASTS, PEEL_LAYOUTS
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    full_view,
    merge_dimensions,
    operand_view,
    peel,
    peeled_views,
    split_dimension,
)

UNPACKED_TYPES = frozenset(("u8", "s8", "s16", "s32"))
"""Element types in which programs compute with such numbers."""
_SIGNED = UNPACKED_TYPES - {"u8"}
_BYTE = "u8"
_MASK, _BITS = 15, 4
_LARGEST_ZERO = 112
"""Maximum number that 15 can be added to in s8."""
_SHIFTS = bytes((0, _BITS))


class PackedNibbles(NamedTuple):
    """Numbers of four bits in the bytes that hold them."""

    view: View
    """Over the bytes, its sizes, strides and offset in numbers; along its contiguous dimension blocks are permuted."""
    block: int
    """Numbers of a block."""
    zero: float
    """What is subtracted from all of them."""


class _Unpacked(NamedTuple):
    """A value that has both numbers of each byte."""

    bytes: View
    """Over the bytes, one dimension for each of the value's: of the one along which the halves follow, the bytes."""
    halves: int
    """Number of that dimension; the lower halves come first."""


def packed_nibbles(view: View) -> PackedNibbles | None:
    """The packed nibbles behind a view of integers; None: they are something else."""
    zero, is_unsigned = 0.0, False
    while True:
        unpacked = _UNPACKING[view.node.opcode](view.node) if view.node.opcode in _UNPACKING else None
        if unpacked is not None:
            break
        is_unsigned |= view.node.shape.element_type not in _SIGNED
        shifted = _shifted(view)
        if shifted is not None and is_unsigned:
            return None  # a negative number would have wrapped
        further = shifted[0] if shifted is not None else converted(view) or peel(view, PEEL_LAYOUTS)
        if further is None or further.node.shape.element_type not in UNPACKED_TYPES:
            return None
        zero += shifted[1] if shifted is not None else 0.0
        view = further
    packed = _packed(view, unpacked)
    return None if packed is None else packed._replace(zero=zero)


def _packed(view: View, unpacked: _Unpacked) -> PackedNibbles | None:
    """The view in numbers over the bytes; None: the blocks do not lie side by side."""
    if view.offset or unpacked.bytes.offset:
        return None
    dimensions: list[Dimension] = []
    block = 0
    for size, stride in view.dimensions:
        factors = split_dimension((size, stride), view.node.shape)
        if factors is None:
            return None
        numbers = [number for _, number, _ in factors]
        if unpacked.halves in numbers:
            inner = _inner_bytes(factors, unpacked)
            if inner is None:
                return None
            block = 2 * inner
            dimensions.append((size, 1))
            continue
        merged = merge_dimensions((part, unpacked.bytes.strides[number] * step) for part, number, step in factors)
        if merged is None:
            return None
        dimensions.append((size, 2 * merged[1] if size > 1 else 1))
    return PackedNibbles(View(unpacked.bytes.node, tuple(dimensions)), block, 0.0) if block else None


def _inner_bytes(factors: Sequence[tuple[int, int, int]], unpacked: _Unpacked) -> int | None:
    """Bytes of a block of the dimension that has the halves; None: they are not adjacent, or the blocks are not."""
    place = [number for _, number, _ in factors].index(unpacked.halves)
    size, stride = unpacked.bytes.dimensions[unpacked.halves]
    whole, _, step = factors[place]
    if whole != 2 * size or step != 1:
        return None
    each = [(part, unpacked.bytes.strides[number] * step) for part, number, step in factors]
    inner = merge_dimensions([*each[:place], (size, stride)])
    every = merge_dimensions([*each[:place], (size, stride), *each[place + 1 :]])
    if inner is None or every is None or (every[0] > 1 and every[1] != 1):
        return None
    return inner[0]


def _shifted(view: View) -> tuple[View, float] | None:
    """(the value from which a constant is subtracted, the constant); None: the node does not do that."""
    node = view.node
    if node.opcode not in ("add", "subtract") or node.shape.element_type not in _SIGNED:
        return None
    constant = scalar_constant(node.operands[1])
    value = operand_view(view, node.operands[0])
    if constant is None or not isinstance(value, View):
        return None
    zero = constant if node.opcode == "subtract" else -constant
    if node.shape.element_type == "s8" and abs(zero) > _LARGEST_ZERO:
        return None  # some numbers would have wrapped
    return value, zero


def converted(view: View) -> View | None:
    """The view of what a convert converts; None: the node is none, or the operand has no single strides."""
    if view.node.opcode != "convert":
        return None
    found = operand_view(view, view.node.operands[0])
    return found if isinstance(found, View) else None


def _concatenated(node: Node) -> _Unpacked | None:
    """Lower halves, then upper halves."""
    if len(node.operands) != 2:
        return None
    low, high = (_half(operand, of) for operand, of in zip(node.operands, (_low, _high), strict=True))
    return _Unpacked(low, node.proto.dimensions[0]) if low is not None and low == high else None


def _half(operand: Node, of: Callable[[View], View | None]) -> View | None:
    """The bytes of which an operand of a concatenation has one half."""
    for view in peeled_views(full_view(operand), PEEL_LAYOUTS):
        found = of(_without_integer_converts(view))
        if found is not None:
            found = peeled_views(found, PEEL_LAYOUTS)[-1]
            return found if found.element_type == _BYTE else None
    return None


def _without_integer_converts(view: View) -> View:
    while view.node.shape.element_type in UNPACKED_TYPES and (further := converted(view)) is not None:
        if further.node.shape.element_type not in UNPACKED_TYPES:
            break
        view = further
    return view


def _low(view: View) -> View | None:
    return _with_constant(view, "and", _MASK)


def _high(view: View) -> View | None:
    return _with_constant(_with_constant(view, "and", _MASK) or view, "shift-right-logical", _BITS)


def _with_constant(view: View, opcode: str, constant: int) -> View | None:
    """The first operand of an instruction with this constant as the second one."""
    node = view.node
    if node.opcode != opcode or node.shape.element_type != _BYTE or scalar_constant(node.operands[1]) != constant:
        return None
    found = operand_view(view, node.operands[0])
    return found if isinstance(found, View) else None


def _shifted_and_masked(node: Node) -> _Unpacked | None:
    """Each byte is repeated, shifted by 0 or 4 bits, and masked."""
    whole = full_view(node)
    shifted = _with_constant(whole, "and", _MASK)
    if shifted is None or shifted.node.opcode != "shift-right-logical" or shifted.dimensions != whole.dimensions:
        return None
    value, counts = shifted.node.operands
    by = peeled_views(full_view(counts), PEEL_LAYOUTS | PEEL_BROADCASTS)[-1]
    source = peeled_views(full_view(value), PEEL_LAYOUTS | PEEL_BROADCASTS)[-1]
    varying = [number for number, (size, stride) in enumerate(by.dimensions) if size > 1 and stride]
    if not _is_zero_and_four(by.node) or len(varying) != 1:
        return None
    (halves,) = varying
    if source.element_type != _BYTE or source.dimensions[halves][1] != 0 or by.dimensions[halves] != (2, 1):
        return None
    dimensions = tuple((1, 1) if number == halves else one for number, one in enumerate(source.dimensions))
    return _Unpacked(View(source.node, dimensions, source.offset), halves)


def _is_zero_and_four(node: Node) -> bool:
    """Whether a value is [0, 4], which XLA writes as a multiple of an iota."""
    if node.opcode == "constant":
        return node.proto.literal.u8s[:] == _SHIFTS
    if node.opcode != "multiply" or node.shape.dimensions != (2,):
        return False
    return any(
        one.opcode == "iota" and scalar_constant(other) == _BITS for one, other in (node.operands, node.operands[::-1])
    )


_UNPACKING: dict[str, Callable[[Node], _Unpacked | None]] = {
    "concatenate": _concatenated,
    "and": _shifted_and_masked,
}
