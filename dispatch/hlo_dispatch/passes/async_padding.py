"""Async padding: a thousand negations that keep a program of kernel calls alone asynchronous.

XLA's CPU client dispatches a program to its own thread, so that the call returns at once, unless HloCostAnalysis counts
fewer than 1000 operations in it (xla/pjrt/cpu/cpu_client.cc, `cheap_computation_`): then the program runs on the
caller's thread. A custom-call counts as no operation. A long program of kernel calls alone would therefore block its
caller, and allocate its results on another thread than stock's program does.
"""

from __future__ import annotations

from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.kernel_call import is_kernel_call
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import row_major, shape_of
from hlo_dispatch.passes.context import PassContext

CHEAP_OPERATIONS = 1000
"""Operation count below which XLA's client runs a program on the caller's thread."""
MIN_MULTIPLY_ADDS = 10_000_000
"""Multiply-adds of some 50 µs; shorter programs are faster on the caller's thread."""
COUNTED_OPCODES = frozenset(
    "abs add and ceil clamp compare convert convolution divide dot floor maximum minimum multiply negate or reduce "
    "select sign subtract".split()
)
"""Opcodes that count at least one operation per result element; transcendental functions count as none."""
NAME = "async_padding"
"""What async padding is called, or begins with."""
_PADDING = row_major("f32", (1024,))


def insert_async_padding(module: Module, context: PassContext) -> set[int]:
    """Add async padding to a dispatched module that needs it."""
    dispatched = (candidate.match for plan in context.plans for candidate in plan.dispatched)
    if sum(match.multiply_adds for match in dispatched) < MIN_MULTIPLY_ADDS or _is_counted_as_costly(module):
        return set()
    editor = Editor(module, module.entry)
    first_call = next((i.id for i in editor.instructions.values() if is_kernel_call(i)), None)
    if first_call is None:
        return set()
    builder = InstructionBuilder.of_new_computation(module, "async_padding", module.entry)
    iota = builder.make("iota", _PADDING, stem="async_padding_iota")
    iota.dimensions.append(0)
    negate = builder.make("negate", _PADDING, iota.id, stem="async_padding_negate")
    editor.computations.append(builder.finished(negate.id))
    fusion = editor.first().fusion(builder.computation, (), _PADDING, stem=NAME)
    # Without a user or a control successor it would be removed as dead code.
    editor.add_control_dependency(first_call, fusion.id)
    return commit(module, [editor])


def _is_counted_as_costly(module: Module) -> bool:
    counted = 0
    for computation in module.proto.computations[:]:
        if COUNTED_OPCODES.isdisjoint(module.opcodes_of(computation.id)):
            continue
        by_id = {instruction.id: instruction for instruction in computation.instructions[:]}
        for instruction in by_id.values():
            if instruction.opcode in COUNTED_OPCODES:
                # A reduction's work is its operand's size.
                of = by_id[instruction.operand_ids[0]] if instruction.opcode == "reduce" else instruction
                shape = shape_of(of.shape)
                counted += shape.elements if shape.is_array else 0
                if counted >= CHEAP_OPERATIONS:
                    return True
    return False
