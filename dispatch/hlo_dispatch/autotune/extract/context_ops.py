"""Context ops: parallel loop fusions that produce an extracted region's inputs and consume its results.

Without them a vendor library measures too well: its thread pool never competes for cores with XLA's, whose workers
spin for a while after a parallel loop (and the other way round). So a loop fusion, split over threads as XLA does it,
copies each input that another instruction computes and each result that one reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule, set_signature
from hlo_dispatch.autotune.extract.loop_harness import BODY, input_elements, result_elements
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, LiteralProto
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.ir.task_partitions import loop_backend_config

_FLOATING = frozenset(("f16", "bf16", "f32", "f64"))


def with_context_ops(module: Module, extracted: ExtractedModule, threads: int) -> Module:
    """A copy of an extracted module with context ops, dispatched or not; inside its loop harness, if it has one."""
    module = module.copy()
    region = next(c for c in module.proto.computations[:] if c.name == BODY)
    is_entry = region.id == module.entry.id
    root = next(i for i in region.instructions if i.id == region.root_id)
    if is_entry:
        inputs = {i.parameter_number: i for i in region.instructions if i.opcode == "parameter"}
        places: Sequence[int] = range(len(extracted.results)) if len(extracted.results) > 1 else ()
    else:
        inputs, places = input_elements(region, extracted), result_elements(extracted)
    worker = _ContextOps(module, region, threads)
    for number, (shape, produced) in enumerate(zip(extracted.inputs, extracted.produced, strict=True)):
        if produced and shape.element_type in _FLOATING and number in inputs:
            value = inputs[number].id
            _replace_uses(region, value, worker.copy_of(value, shape), keep=() if is_entry else (root.id,))
    parts = list(root.operand_ids) if places else [root.id]
    for place, shape, consumed in zip(places or (0,), extracted.results, extracted.consumed, strict=True):
        if consumed and shape.element_type in _FLOATING:
            parts[place] = worker.copy_of(parts[place], shape)
    if places:
        del root.operand_ids[:]
        root.operand_ids.extend(parts)
    else:
        region.root_id = parts[0]
    if is_entry:
        set_signature(region, extracted.inputs, root.shape)
    _place_copies(region, worker.made)
    # Callees come first.
    ordered = [*worker.computations, *(type(c).FromString(c.SerializeToString()) for c in module.proto.computations)]
    del module.proto.computations[:]
    module.proto.computations.extend(ordered)
    return Module(module.proto)


def _replace_uses(computation: ComputationProto, value: int, copy: int, keep: Sequence[int]) -> None:
    """Replace the uses of a value by its copy, except in the instructions `keep`."""
    for instruction in computation.instructions:
        if instruction.id in keep:
            continue
        for place, operand in enumerate(instruction.operand_ids):
            if operand == value:
                instruction.operand_ids[place] = copy
    if computation.root_id == value:
        computation.root_id = copy


def _place_copies(entry: ComputationProto, made: dict[int, InstructionProto]) -> None:
    """Place each context op after the value that it copies."""
    ordered: list[InstructionProto] = []
    loops_of: dict[int, list[InstructionProto]] = {}
    for loop in made.values():
        loops_of.setdefault(loop.operand_ids[0], []).append(loop)
    for instruction in [InstructionProto.FromString(i.SerializeToString()) for i in entry.instructions]:
        ordered.append(instruction)
        ordered += loops_of.pop(instruction.id, [])
    # An input that is returned unchanged is copied twice.
    for loops in loops_of.values():
        ordered += loops
    tuples = [i for i in ordered if i.id == entry.root_id]
    ordered = [i for i in ordered if i.id != entry.root_id] + tuples
    del entry.instructions[:]
    entry.instructions.extend(ordered)


class _ContextOps:
    """Builder of context ops: loop fusions that copy a value."""

    def __init__(self, module: Module, region: ComputationProto, threads: int) -> None:
        self._module, self._threads = module, threads
        self._next_id = max(i.id for i in region.instructions) + 1
        self.made: dict[int, InstructionProto] = {}
        self.computations: list[ComputationProto] = []

    def copy_of(self, value: int, shape: Shape) -> int:
        """Id of a new loop fusion that multiplies by one, split over threads as XLA does it."""
        computation = self._body(shape)
        loop = InstructionProto(
            opcode="fusion", name=self._module.fresh_name("context_op"), id=self._next_id, fusion_kind="kLoop"
        )
        self._next_id += 1
        loop.shape.CopyFrom(shape.to_proto())
        loop.operand_ids.append(value)
        loop.called_computation_ids.append(computation.id)
        loop.backend_config = loop_backend_config(shape, self._threads)
        self.made[loop.id] = loop
        return loop.id

    def _body(self, shape: Shape) -> ComputationProto:
        identifier = self._module.fresh_computation_id()
        computation = ComputationProto(id=identifier, name=self._module.fresh_name("context_op_computation"))
        computation.execution_thread = self._module.entry.execution_thread
        scalar = row_major(shape.element_type, ())
        first = identifier << 32
        for place, opcode, result, operands in (
            (0, "parameter", shape, ()), (1, "constant", scalar, ()), (2, "broadcast", shape, (1,)),
            (3, "multiply", shape, (0, 2)),
        ):  # fmt: skip
            proto = computation.instructions.add(opcode=opcode, id=first + place)
            proto.name = self._module.fresh_name(f"context_op_{opcode}")
            proto.shape.CopyFrom(result.to_proto())
            proto.operand_ids.extend(first + operand for operand in operands)
            if opcode == "constant":
                _set_one(proto.literal, scalar)
        computation.root_id = first + 3
        self.computations.append(computation)
        return computation


def _set_one(literal: LiteralProto, scalar: Shape) -> None:
    literal.shape.CopyFrom(scalar.to_proto())
    match scalar.element_type:
        case "f32":
            literal.f32s.append(1.0)
        case "f64":
            literal.f64s.append(1.0)
        case "bf16":
            literal.bf16s = b"\x80\x3f"
        case _:
            literal.f16s = b"\x00\x3c"
