"""Stop before code generation: a module that ends a compilation with an error, once its optimized HLO was captured."""

from __future__ import annotations

from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI

UNREGISTERED_TARGET = "hlo_dispatch_nowhere"
"""A custom-call target without a handler; XLA's error names it."""


def stopping_before_codegen(module: Module) -> Module:
    """A module of the same signature that XLA cannot compile."""
    program = module.copy()
    editor = Editor(program, program.entry)
    result = editor.last().make("custom-call", program.entry.program_shape.result, stem="nowhere")
    result.custom_call_target, result.custom_call_api_version = UNREGISTERED_TARGET, CUSTOM_CALL_API_TYPED_FFI
    editor.root_id = result.id
    for identifier, instruction in list(editor.instructions.items()):
        if instruction.opcode != "parameter" and instruction is not result:
            editor.erase(identifier)
    commit(program, [editor])
    return program
