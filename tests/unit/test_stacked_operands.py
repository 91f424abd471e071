"""Stacked operands: which slices a kernel call reads from the array itself, and which ones stay copies."""

from __future__ import annotations

import re

import pytest
from running import rewritten, rewritten_and_run

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.analysis.stacked_slices import slices_of, stacked_slice
from hlo_dispatch.ir.kernel_call import KernelCall, OperandSlice
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from matching import parsed

X, W, STACK = "f32[8,64]{1,0}", "f32[64,64]{1,0}", "f32[3,64,64]{2,1,0}"
PRODUCT = f"{X} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def layer(stack: str = "stack", index: str = "i") -> str:
    return f"f32[1,64,64]{{2,1,0}} dynamic-slice({stack}, {index}, zero, zero), dynamic_slice_sizes={{1,64,64}}"


def program(body: str, stack: str = STACK, computations: str = "") -> str:
    return f"""
{computations}
ENTRY main {{
  x = {X} parameter(0)
  stack = {stack} parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  {body}
}}
"""


def call_of(module: Module) -> tuple[KernelCall, dict[int, InstructionProto]]:
    """The entry's only kernel call, and the entry's instructions."""
    instructions = {instruction.id: instruction for instruction in module.entry.instructions}
    (call,) = (i for i in instructions.values() if i.custom_call_target.startswith("hlo_dispatch."))
    return KernelCall.read(call), instructions


def assert_reads_slice(module: Module, of: tuple[int, int, int]) -> None:
    """The call reads a slice of the stack: (count, stride, elements)."""
    call, instructions = call_of(module)
    (found,) = call.slices.values()
    assert instructions[call.operands[1]].parameter_number == 1
    assert (found.count, found.stride, found.elements) == of
    assert instructions[call.arguments[-1]].id == found.index


def assert_reads_copy(module: Module) -> None:
    call, _ = call_of(module)
    assert not call.slices
    assert call.arguments == call.operands


def test_an_instruction_is_left_out() -> None:
    body = f"layer = {layer()}\n  w = {W} bitcast(layer)\n  ROOT y = {PRODUCT}"
    module = rewritten_and_run(program(body))
    assert_reads_slice(module, (3, 64 * 64 * 4, 64 * 64))
    assert "dynamic-slice" not in {instruction.opcode for instruction in module.entry.instructions}


def test_a_fusion_is_left_out_and_its_index_is_computed() -> None:
    """A negative index counts from the end; the rest of the fusion was for it."""
    fused = f"""
fused {{
  stack = {STACK} parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  count = s32[] constant(3)
  from_end = s32[] add(i, count)
  is_negative = pred[] compare(i, zero), direction=LT
  at = s32[] select(is_negative, from_end, i)
  layer = {layer("stack", "at")}
  ROOT w = {W} bitcast(layer)
}}"""
    body = f"w = {W} fusion(stack, i), kind=kLoop, calls=fused\n  ROOT y = {PRODUCT}"
    module = rewritten_and_run(program(body, computations=fused))
    assert_reads_slice(module, (3, 64 * 64 * 4, 64 * 64))
    call, instructions = call_of(module)
    assert instructions[call.slices[1].index].opcode == "fusion"


def test_several_rows_of_an_array() -> None:
    """Any 64 of 100 rows: neighbouring slices overlap."""
    body = (
        f"w = {W} dynamic-slice(stack, i, zero), dynamic_slice_sizes={{64,64}}\n"
        f"  other = {W} negate(w)\n  z = {X} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        f"  ROOT y = ({X}, {W}) tuple(z, other)"
    )
    assert_reads_slice(rewritten_and_run(program(body, "f32[100,64]{1,0}")), (37, 256, 64 * 64))


def test_the_outermost_dimension_in_memory() -> None:
    stack = "f32[1,64,64,3]{2,1,3,0}"
    layer = "f32[1,64,64,1]{2,1,3,0} dynamic-slice(stack, i, i, i, i), dynamic_slice_sizes={1,64,64,1}"
    body = f"layer = {layer}\n  w = {W} bitcast(layer)\n  ROOT y = {PRODUCT}"
    assert_reads_slice(rewritten_and_run(program(body, stack)), (3, 64 * 64 * 4, 64 * 64))


@pytest.mark.parametrize(
    ("stack", "sizes"),
    [("f32[64,3,64]{2,1,0}", "64,1,64"), ("f32[3,64,99]{2,1,0}", "1,64,64")],
    ids=["an inner dimension", "a part of a layer"],
)
def test_what_is_not_contiguous_is_copied(stack: str, sizes: str) -> None:
    part = f"f32[{sizes}]{{2,1,0}} dynamic-slice(stack, i, i, i), dynamic_slice_sizes={{{sizes}}}"
    body = f"layer = {part}\n  w = {W} bitcast(layer)\n  ROOT y = {PRODUCT}"
    assert_reads_copy(rewritten_and_run(program(body, stack)))


@pytest.mark.parametrize(
    ("stack", "sizes", "stride"),
    [
        ("s4[3,4,6]{2,1,0:E(4)}", "1,4,6", 12),
        ("s4[3,5,5]{2,1,0:E(4)}", "1,5,5", None),
        ("s8[3,5,5]{2,1,0}", "1,5,5", 25),
        ("f32[3,0,5]{2,1,0}", "1,0,5", None),
    ],
)
def test_layers_begin_with_bytes(stack: str, sizes: str, stride: int | None) -> None:
    """Of four bits, a layer of an odd number of elements begins within a byte; no layer without elements is read."""
    element_type, _, layout = stack[: stack.index("[")], *stack.partition("{")[1:]
    part = f"{element_type}[{sizes}]{{{layout} dynamic-slice(stack, i, zero, zero), dynamic_slice_sizes={{{sizes}}}"
    module = parsed(program(f"ROOT layer = {part}", stack))
    graph = FlatGraph(module, module.entry)
    found = stacked_slice(graph.root)
    assert (None if found is None else found.stride) == stride
    assert bool(slices_of(graph, set(graph.nodes))) == (stride is not None)


LOOP = """
body {
  state = (s32[], X, STACK) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = X get-tuple-element(state), index=1
  stack = STACK get-tuple-element(state), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  LINES
  ROOT result = (s32[], X, STACK) tuple(next, y, new)
}
condition {
  state = (s32[], X, STACK) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  three = s32[] constant(3)
  ROOT goes_on = pred[] compare(i, three), direction=LT
}
ENTRY main {
  x = X parameter(0)
  stack = STACK parameter(1)
  copied_x = X copy(x)
  copied_stack = STACK copy(stack)
  zero = s32[] constant(0)
  copied_zero = s32[] copy(zero)
  state = (s32[], X, STACK) tuple(copied_zero, copied_x, copied_stack)
  ROOT loop = (s32[], X, STACK) while(state), condition=condition, body=body
}
"""


def loop_body(*lines: str) -> tuple[KernelCall, dict[str, InstructionProto]]:
    """The kernel call of a loop's body, and the body's instructions by name."""
    text = LOOP.replace("LINES", "\n  ".join(lines))
    module = rewritten(re.sub(r"\bX\b", X, text).replace("STACK", STACK))
    body = next(c for c in module.proto.computations if c.name == "body")
    (call,) = (i for i in body.instructions if i.custom_call_target.startswith("hlo_dispatch."))
    return KernelCall.read(call), {instruction.name: instruction for instruction in body.instructions}


def test_a_stack_that_is_updated_afterwards() -> None:
    """The update waits for the call; nothing is copied."""
    call, instructions = loop_body(
        f"layer = {layer()}",
        f"w = {W} bitcast(layer)",
        f"y = {PRODUCT}",
        "small = f32[1,1,64]{2,1,0} slice(layer), slice={[0:1], [0:1], [0:64]}",
        f"new = {STACK} dynamic-update-slice(stack, small, next, zero, zero)",
    )
    assert call.slices
    kernel = next(name for name, i in instructions.items() if i.custom_call_target)
    assert instructions[kernel].id in instructions["new"].control_predecessor_ids
    assert not [
        name for name in instructions if "hazard_copy" in name and instructions[name].shape == instructions["new"].shape
    ]


def test_a_stack_that_is_updated_before() -> None:
    """A call that needs the updated array, and a layer of what was there before, has to read a copy of that layer."""
    call, instructions = loop_body(
        f"layer = {layer()}",
        f"w = {W} bitcast(layer)",
        "small = f32[1,8,64]{2,1,0} bitcast(x)",
        f"new = {STACK} dynamic-update-slice(stack, small, next, zero, zero)",
        f"other_layer = {layer('new', 'next')}",
        f"other = {W} bitcast(other_layer)",
        "rows = f32[8,64]{1,0} slice(other), slice={[0:8], [0:64]}",
        "y = f32[8,64]{1,0} dot(rows, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    assert not call.slices
    assert not [i for i in instructions.values() if i.opcode == "copy" and i.shape == instructions["new"].shape]


def test_a_stack_that_is_replaced() -> None:
    """The new value may be written where the old one is."""
    product = f"layer = {layer()}", f"w = {W} bitcast(layer)", f"y = {PRODUCT}"
    call, _ = loop_body(*product, f"new = {STACK} negate(stack)")
    assert not call.slices


def test_a_call_is_written_as_it_is_read() -> None:
    module = rewritten(program(f"layer = {layer()}\n  w = {W} bitcast(layer)\n  ROOT y = {PRODUCT}"))
    call, instructions = call_of(module)
    again = InstructionProto()
    call.write(again)
    original = next(i for i in instructions.values() if i.custom_call_target)
    assert (again.backend_config, again.operand_ids[:]) == (original.backend_config, original.operand_ids[:])
    assert call.slices == {1: OperandSlice(call.arguments[-1], 3, 64 * 64 * 4, 64 * 64)}
