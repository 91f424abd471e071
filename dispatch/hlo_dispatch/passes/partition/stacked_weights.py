"""Weights that are slices of stacked weights (analysis/stacked_slices.py): packed each, and stacked again."""

from __future__ import annotations

from hlo_dispatch.analysis.stacked_slices import Picked
from hlo_dispatch.ir.module import Module, new_instruction
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.ir.task_partitions import loop_backend_config


def sliced(module: Module, picked: Picked, number: int, shape: Shape, fresh: int) -> list[InstructionProto]:
    """Instructions for one of the values; the last one is it.

    Args:
        shape: of the value.
        fresh: the first id that nothing has.
    """
    piece = Shape(picked.shape.element_type, (1, *picked.shape.dimensions[1:]), picked.shape.minor_to_major)
    cut = new_instruction(module, "slice", fresh, piece, picked.stack)
    for dimension, size in enumerate(picked.shape.dimensions):
        start, limit = (number, number + 1) if dimension == 0 else (0, size)
        cut.slice_dimensions.add(start=start, limit=limit, stride=1)
    return [cut, new_instruction(module, "bitcast", fresh + 1, shape, cut.id)]


def stacked(module: Module, values: list[InstructionProto], size: int, fresh: int) -> InstructionProto:
    """One array of several values, each of so many bytes (u8)."""
    stack = new_instruction(
        module, "concatenate", fresh, row_major("u8", (size * len(values),)), *(value.id for value in values)
    )
    stack.dimensions.append(0)
    return stack


def taken_out(
    module: Module, stack: InstructionProto, picked: Picked, size: int, fresh: int, threads: int
) -> tuple[InstructionProto, ComputationProto]:
    """The fusion that copies one of them, and its computation."""
    shape, rows = row_major("u8", (size,)), row_major("u8", (picked.count, size))
    inner = ComputationProto(id=module.fresh_computation_id(), name=module.fresh_name("taken_out"))
    first = inner.id << 32
    whole = new_instruction(module, "parameter", first, row_major("u8", (size * picked.count,)))
    index = new_instruction(module, "parameter", first + 1, picked.index_shape)
    index.parameter_number = 1
    as_rows = new_instruction(module, "bitcast", first + 2, rows, whole.id)
    row = new_instruction(
        module, "dynamic-slice", first + 3, row_major("u8", (1, size)), as_rows.id, index.id, index.id
    )
    row.dynamic_slice_sizes.extend((1, size))  # all of the second dimension: wherever it is to begin, it begins at 0
    flat = new_instruction(module, "bitcast", first + 4, shape, row.id)
    inner.instructions.extend((whole, index, as_rows, row, flat))
    inner.root_id = flat.id
    fusion = new_instruction(module, "fusion", fresh, shape, stack.id, picked.index)
    fusion.fusion_kind = "kLoop"
    fusion.backend_config = loop_backend_config(shape, threads)
    fusion.called_computation_ids.append(inner.id)
    return fusion, inner
