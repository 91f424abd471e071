"""Dimensions of a dot's operands by their role: batch, contracting, free."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.ir.schema import DotDimensionNumbersProto


class DotDimensions(NamedTuple):
    """The numbers of one operand's dimensions."""

    batch: tuple[int, ...]
    contracting: tuple[int, ...]
    free: tuple[int, ...]
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
    left, right = dot.operands
    numbers = dot.proto.dot_dimension_numbers.SerializeToString()
    return _by_role(numbers, len(left.shape.dimensions), len(right.shape.dimensions))


@lru_cache(maxsize=4096)
def _by_role(serialized: bytes, left: int, right: int) -> tuple[DotDimensions, DotDimensions]:
    """Both operands' dimensions, by their ranks: a module has few distinct ones."""
    numbers = DotDimensionNumbersProto.FromString(serialized)
    batch, contracting = tuple(numbers.lhs_batch_dimensions), tuple(numbers.lhs_contracting_dimensions)
    free = tuple(number for number in range(left) if number not in batch and number not in contracting)
    first = DotDimensions(batch, contracting, free, len(batch))
    batch, contracting = tuple(numbers.rhs_batch_dimensions), tuple(numbers.rhs_contracting_dimensions)
    others = tuple(number for number in range(right) if number not in batch and number not in contracting)
    return first, DotDimensions(batch, contracting, others, len(batch) + len(free))
