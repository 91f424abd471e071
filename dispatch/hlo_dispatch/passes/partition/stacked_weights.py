"""Stacked weights (analysis/stacked_slices.py): slices them for prepacking, concatenates and slices the result."""

from __future__ import annotations

from hlo_dispatch.analysis.stacked_slices import StackedSlice
from hlo_dispatch.ir.module import Module, new_instruction
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.ir.task_partitions import loop_backend_config


def slice_of_stack(
    module: Module, stacked_slice: StackedSlice, number: int, shape: Shape, first_id: int
) -> list[InstructionProto]:
    """Instructions that slice one value from the stack; the last one is the value.

    Args:
        shape: of the value.
        first_id: the first free id.
    """
    slice_shape = Shape(
        stacked_slice.shape.element_type, (1, *stacked_slice.shape.dimensions[1:]), stacked_slice.shape.minor_to_major
    )
    sliced = new_instruction(module, "slice", first_id, slice_shape, stacked_slice.stack)
    for dimension, size in enumerate(stacked_slice.shape.dimensions):
        start, limit = (number, number + 1) if dimension == 0 else (0, size)
        sliced.slice_dimensions.add(start=start, limit=limit, stride=1)
    return [sliced, new_instruction(module, "bitcast", first_id + 1, shape, sliced.id)]


def concatenated(module: Module, values: list[InstructionProto], size: int, first_id: int) -> InstructionProto:
    """Concatenate several values of `size` bytes each (u8)."""
    stack = new_instruction(
        module, "concatenate", first_id, row_major("u8", (size * len(values),)), *(value.id for value in values)
    )
    stack.dimensions.append(0)
    return stack


def slice_at_index(
    module: Module, stack: InstructionProto, stacked_slice: StackedSlice, size: int, first_id: int, threads: int
) -> tuple[InstructionProto, ComputationProto]:
    """The fusion that slices the stack at the loop's index, and its computation."""
    shape, rows = row_major("u8", (size,)), row_major("u8", (stacked_slice.count, size))
    inner = ComputationProto(id=module.fresh_computation_id(), name=module.fresh_name("slice_at_index"))
    base_id = inner.id << 32
    parameter = new_instruction(module, "parameter", base_id, row_major("u8", (size * stacked_slice.count,)))
    index = new_instruction(module, "parameter", base_id + 1, stacked_slice.index_shape)
    index.parameter_number = 1
    as_rows = new_instruction(module, "bitcast", base_id + 2, rows, parameter.id)
    row = new_instruction(
        module, "dynamic-slice", base_id + 3, row_major("u8", (1, size)), as_rows.id, index.id, index.id
    )
    row.dynamic_slice_sizes.extend((1, size))  # the whole second dimension: any start index clamps to 0
    flat = new_instruction(module, "bitcast", base_id + 4, shape, row.id)
    inner.instructions.extend((parameter, index, as_rows, row, flat))
    inner.root_id = flat.id
    fusion = new_instruction(module, "fusion", first_id, shape, stack.id, stacked_slice.index)
    fusion.fusion_kind = "kLoop"
    fusion.backend_config = loop_backend_config(shape, threads)
    fusion.called_computation_ids.append(inner.id)
    return fusion, inner
