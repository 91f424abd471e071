"""Float64 reference: an extracted module with its fusions expanded and every floating type widened.

It rounds only in float64, so it decides which of two different results is right. XLA runs it instruction by
instruction, which is slow.
"""

from __future__ import annotations

import numpy as np

from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, InstructionProto, LiteralProto, ProgramShapeProto, ShapeProto

_WIDENED_TYPES = {ELEMENT_TYPE_NUMBERS[kind]: ELEMENT_TYPE_NUMBERS["f64"] for kind in ("f16", "bf16", "f32")} | {
    ELEMENT_TYPE_NUMBERS["c64"]: ELEMENT_TYPE_NUMBERS["c128"]
}
_TUPLE = ELEMENT_TYPE_NUMBERS["tuple"]
# Ops that depend on an element's bits, or call other code.
_UNSUPPORTED = frozenset(
    "bitcast-convert custom-call fusion while conditional call reduce-precision rng rng-bit-generator".split()
)


def in_float64(module: Module) -> Module | None:
    """The same computation on f64 (and c128) inputs and results; None where an op has no float64 version."""
    module = module.copy()
    graph = FlatGraph(module, module.entry)
    if any(node.opcode in _UNSUPPORTED for node in graph.nodes):
        return None
    editor = Editor(module, module.entry)
    originals, builder, ids = list(editor.instructions), editor.last(), dict[Node, int]()
    for node in graph.nodes:
        wide = builder.clone(node.proto, [ids[operand] for operand in node.operands])
        wide.opcode = "copy" if node.opcode == INSERTED_COPY else node.opcode
        wide.backend_config = b""
        ids[node] = wide.id
    editor.root_id = ids[graph.root]
    for identifier in originals:
        editor.erase(identifier)
    commit(module, [editor])
    # The entry, and the reducers that it calls.
    for computation in module.proto.computations[:]:
        for proto in computation.instructions[:]:
            _widen(proto)
        _widen_signature(computation.program_shape)
    _widen_signature(module.proto.host_program_shape)
    return module


def _widen(proto: InstructionProto) -> None:
    _widen_shape(proto.shape)
    if proto.opcode == "constant":
        _widen_literal(proto.literal)


def _widen_signature(program_shape: ProgramShapeProto) -> None:
    for shape in (*program_shape.parameters, program_shape.result):
        _widen_shape(shape)


def _widen_shape(shape: ShapeProto) -> None:
    for part in shape.tuple_shapes:
        _widen_shape(part)
    shape.element_type = _WIDENED_TYPES.get(shape.element_type, shape.element_type)


def _widen_literal(literal: LiteralProto) -> None:
    import ml_dtypes

    values = [
        *literal.f32s,
        *np.frombuffer(literal.f16s, np.float16).astype(float),
        *np.frombuffer(literal.bf16s, ml_dtypes.bfloat16).astype(float),
    ]
    if values:
        for field in ("f32s", "f16s", "bf16s"):
            literal.ClearField(field)
        literal.f64s.extend(values)
    _widen_shape(literal.shape)
