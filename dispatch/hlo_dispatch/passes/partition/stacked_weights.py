"""Stacked weights (analysis/stacked_slices.py): slices them for prepacking, and slices the prepacked stack."""

from __future__ import annotations

from hlo_dispatch.analysis.stacked_slices import StackedSlice
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.schema import ComputationProto
from hlo_dispatch.ir.shape import Shape, row_major


def slice_of_stack(builder: InstructionBuilder, stacked_slice: StackedSlice, number: int, shape: Shape) -> int:
    """Emit instructions that slice one value of this shape from the stack; returns the value's id."""
    stack = stacked_slice.shape
    slice_shape = Shape(stack.element_type, (1, *stack.dimensions[1:]), stack.minor_to_major)
    start = (number, *(0 for _ in stack.dimensions[1:]))
    sliced = builder.slice(stacked_slice.stack, slice_shape, start)
    return builder.make("bitcast", shape, sliced.id).id


def slice_computation(caller: InstructionBuilder, stacked_slice: StackedSlice, size: int) -> ComputationProto:
    """A fused computation: the slice of `size` bytes (u8) at an index of a stack, which is one array of bytes."""
    inner = InstructionBuilder.of_new_computation(caller.module, "slice_at_index", caller.computation)
    stack = inner.parameter(0, row_major("u8", (size * stacked_slice.count,)))
    index = inner.parameter(1, stacked_slice.index_shape)
    rows = inner.make("bitcast", row_major("u8", (stacked_slice.count, size)), stack.id)
    row = inner.make("dynamic-slice", row_major("u8", (1, size)), rows.id, index.id, index.id)
    row.dynamic_slice_sizes.extend((1, size))  # the whole second dimension: any start index clamps to 0
    return inner.finished(inner.make("bitcast", row_major("u8", (size,)), row.id).id)
