"""Context ops: parallel loop fusions that produce an extracted region's inputs and consume its results.

Without them a vendor library measures too well: its thread pool never competes for cores with XLA's, whose workers
spin for a while after a parallel loop (and the other way round). So a loop fusion, split over threads as XLA does it,
copies each input that another instruction computes and each result that one reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule, set_signature
from hlo_dispatch.autotune.extract.loop_harness import BODY, input_elements, result_elements
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import LiteralProto
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.ir.task_partitions import loop_backend_config

_COPIED = frozenset(("f16", "bf16", "f32", "f64", "u32"))
"""Element types of the arrays that are copied. Of integers u32 alone: the loops over random words that a region may be
write over what they start with, which must be no parameter."""


def with_context_ops(module: Module, extracted: ExtractedModule, threads: int) -> Module:
    """A copy of an extracted module with context ops, dispatched or not; inside its loop harness, if it has one."""
    module = module.copy()
    region = next(c for c in module.proto.computations[:] if c.name == BODY)
    is_entry = region.id == module.entry.id
    editor = Editor(module, region)
    root = editor.root
    if is_entry:
        inputs = {parameter.parameter_number: parameter for parameter in editor.parameters()}
        places: Sequence[int] = range(len(extracted.results)) if len(extracted.results) > 1 else ()
    else:
        inputs, places = input_elements(region, extracted), result_elements(extracted)
    for number, (shape, produced) in enumerate(zip(extracted.inputs, extracted.produced, strict=True)):
        if produced and shape.element_type in _COPIED and number in inputs:
            value = inputs[number].id
            users = editor.users(value)
            copy = _emit_context_op(editor, value, shape, threads)
            for user in users:
                # A loop returns its own element.
                if is_entry or user != root.id:
                    editor.replace_operands(user, {value: copy})
            editor.root_id = copy if editor.root_id == value else editor.root_id
    parts = editor.root.operand_ids[:] if places else [editor.root_id]
    for place, shape, consumed in zip(places or (0,), extracted.results, extracted.consumed, strict=True):
        if consumed and shape.element_type in _COPIED:
            parts[place] = _emit_context_op(editor, parts[place], shape, threads)
    if places:
        editor.set_operands(root.id, parts)
    else:
        editor.root_id = parts[0]
    commit(module, [editor])
    if is_entry:
        set_signature(region, extracted.inputs, root.shape)
    return module


def _emit_context_op(editor: Editor, value: int, shape: Shape, threads: int) -> int:
    """Emit a loop fusion that multiplies by one, split over threads as XLA does it; returns its id."""
    inner = InstructionBuilder.of_new_computation(editor.module, "context_op_computation", editor.computation)
    scalar, stem = row_major(shape.element_type, ()), "context_op_{}".format
    literal = LiteralProto()
    _set_one(literal, scalar)
    parameter = inner.parameter(0, shape, stem("parameter"))
    one = inner.constant(scalar, literal, stem("constant"))
    ones = inner.make("broadcast", shape, one.id, stem=stem("broadcast"))
    product = inner.make("multiply", shape, parameter.id, ones.id, stem=stem("multiply"))
    editor.computations.append(inner.finished(product.id))
    config = loop_backend_config(shape, threads)
    return editor.after(value).fusion(inner.computation, (value,), shape, stem="context_op", config=config).id


def _set_one(literal: LiteralProto, scalar: Shape) -> None:
    literal.shape.CopyFrom(scalar.to_proto())
    match scalar.element_type:
        case "f32":
            literal.f32s.append(1.0)
        case "f64":
            literal.f64s.append(1.0)
        case "u32":
            literal.u32s.append(1)
        case "bf16":
            literal.bf16s = b"\x80\x3f"
        case _:
            literal.f16s = b"\x00\x3c"
