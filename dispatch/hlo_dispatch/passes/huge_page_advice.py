"""Huge-page advice: inserts a first instruction that advises huge pages for the buffers that each run allocates anew.

XLA allocates the values of a program in one temporary buffer and each result in a buffer of its own, in every run. An
allocator maps a large block when it is asked for and unmaps it when it is freed, so that each run takes a page fault
for every 4 KB. The operating system gives 2 MB at a time where it is advised to before the first write
(kernels/common/huge_pages.h). The kernel call `own.huge_pages` has results as large as these buffers and runs before
every other instruction. They are dead at once: XLA's buffer assignment places them where other values are afterwards.
"""

from __future__ import annotations

from hlo_dispatch.analysis.fresh_buffers import fresh_buffers, result_shapes
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.kernel_call import KernelCall, is_kernel_call
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto
from hlo_dispatch.ir.shape import row_major, shape_of
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.vendor import registry

KERNEL = "own.huge_pages"
LEAST_BYTES = 16 << 20
"""As kernels/common/huge_pages.h has it: nothing is advised for smaller buffers."""
NAME = "huge_pages"
"""What the instruction is called, or begins with."""
_WITHOUT_WORK = frozenset("bitcast constant get-tuple-element parameter tuple".split())
_WITHOUT_NEW_VALUES = _WITHOUT_WORK | {"while"}


def advise_huge_pages(module: Module, _: PassContext) -> set[int]:
    """Insert the advice into a module with kernel calls, if its buffers are large."""
    if not any(_has_kernel_call(computation) for computation, _ in module.control_flow_computations()):
        return set()
    if _most_bytes(module) < LEAST_BYTES:
        return set()
    sizes = [size for size in fresh_buffers(module) if size >= LEAST_BYTES]
    if not sizes:
        return set()
    editor = Editor(module, module.entry)
    attributes = Attributes({"abi": registry.abi(), "library": registry.own_version(), "bytes": sizes})
    shapes = tuple(row_major("u8", (size,)) for size in sizes)
    call = KernelCall(registry.kernels()[KERNEL].target, (), attributes, shapes)
    first = _first(module.entry)
    advice = editor.first().kernel_call(call, NAME)
    for identifier in first:
        editor.add_control_dependency(identifier, advice.id)
    return commit(module, [editor])


def _most_bytes(module: Module) -> int:
    """An upper bound of the bytes of all buffers: that every value has its own, except for loops, whose state is that
    of their operand, and what a computation gives its caller, who has the buffers."""
    total = 0
    for computation, _ in module.control_flow_computations():
        by_id = {instruction.id: instruction for instruction in computation.instructions[:]}
        if computation.id != module.entry.id:
            root = by_id.pop(computation.root_id)
            for result in root.operand_ids[:] if root.opcode == "tuple" else ():
                by_id.pop(result, None)
        total += sum(
            shape_of(shape).bytes
            for instruction in by_id.values()
            if instruction.opcode not in _WITHOUT_NEW_VALUES
            for shape in result_shapes(instruction)
        )
    return total


def _has_kernel_call(computation: ComputationProto) -> bool:
    return any(map(is_kernel_call, computation.instructions[:]))


def _first(entry: ComputationProto) -> list[int]:
    """Ids of the instructions that wait for no other that does work."""
    without_work: set[int] = set()
    first: list[int] = []
    for instruction in entry.instructions[:]:
        waits = {*instruction.operand_ids[:], *instruction.control_predecessor_ids[:]} - without_work
        if waits:
            continue
        if instruction.opcode in _WITHOUT_WORK:
            without_work.add(instruction.id)
        else:
            first.append(instruction.id)
    return first
