"""Dimensions of a dot's operands by their role: batch, contracting, free."""

from __future__ import annotations

from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node


class DotDimensions(NamedTuple):
    """The numbers of one operand's dimensions."""

    batch: list[int]
    contracting: list[int]
    free: list[int]
    """Neither batch nor contracting."""
    first_free: int
    """The number that the first free one has in the result: batch dimensions come first, then the left side's."""

    @property
    def in_result(self) -> dict[int, int]:
        """Number of a batch or free dimension → its number in the result."""
        batch = {number: place for place, number in enumerate(self.batch)}
        return batch | {number: place for place, number in enumerate(self.free, self.first_free)}


def dot_dimensions(dot: Node) -> tuple[DotDimensions, DotDimensions]:
    """Both operands' dimensions."""
    numbers = dot.proto.dot_dimension_numbers
    left, right = (range(len(operand.shape.dimensions)) for operand in dot.operands)
    batch, contracting = numbers.lhs_batch_dimensions[:], numbers.lhs_contracting_dimensions[:]
    free = [number for number in left if number not in batch and number not in contracting]
    first = DotDimensions(batch, contracting, free, len(batch))
    batch, contracting = numbers.rhs_batch_dimensions[:], numbers.rhs_contracting_dimensions[:]
    others = [number for number in right if number not in batch and number not in contracting]
    return first, DotDimensions(batch, contracting, others, len(batch) + len(free))
