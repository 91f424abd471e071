"""Huge-page advice: inserts a first instruction that advises huge pages for the buffers that each run allocates anew.

XLA allocates the values of a program in one temporary buffer and each result in a buffer of its own, in every run. An
allocator maps a large block when it is asked for and unmaps it when it is freed, so that each run takes a page fault
for every 4 KB. The operating system gives 2 MB at a time where it is advised to before the first write
(kernels/common/huge_pages.h). The kernel call `own.huge_pages` has results as large as these buffers and runs before
every other instruction. They are dead at once: XLA's buffer assignment places them where other values are afterwards.
"""

from __future__ import annotations

from hlo_dispatch.analysis.fresh_buffers import fresh_buffers
from hlo_dispatch.ir.module import Module, new_tuple
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI, ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.backend_config import to_text
from hlo_dispatch.vendor import registry

KERNEL = "own.huge_pages"
LEAST_BYTES = 16 << 20
"""As kernels/common/huge_pages.h has it: nothing is advised for smaller buffers."""
NAME = "huge_pages"
"""What the instruction is called, or begins with."""
_WITHOUT_WORK = frozenset("bitcast constant get-tuple-element parameter tuple".split())


def with_huge_pages(serialized: bytes) -> bytes:
    """The module with the advice, if it has kernel calls and large buffers.

    Raises:
        ModuleError: the bytes are not a module.
    """
    module = Module.from_bytes(serialized)
    changed = advise_huge_pages(module)
    if not changed:
        return serialized
    verify(module, changed)
    return module.to_bytes()


def advise_huge_pages(module: Module) -> set[int]:
    """Insert the advice into a module with kernel calls, if its buffers are large; edits `module` in place.

    Returns:
        ids of the computations that were changed.
    """
    if not any(_has_kernel_call(computation) for computation, _ in module.control_flow_computations()):
        return set()
    sizes = [size for size in fresh_buffers(module) if size >= LEAST_BYTES]
    if not sizes:
        return set()
    entry = module.entry
    call = _call(module, max(instruction.id for instruction in entry.instructions[:]) + 1, sizes)
    for instruction in _first(entry):
        instruction.control_predecessor_ids.append(call.id)
    instructions = [call, *entry.instructions[:]]
    del entry.instructions[:]
    entry.instructions.extend(instructions)
    return {entry.id}


def _has_kernel_call(computation: ComputationProto) -> bool:
    return any(i.custom_call_target.startswith("hlo_dispatch.") for i in computation.instructions[:])


def _call(module: Module, identifier: int, sizes: list[int]) -> InstructionProto:
    shapes = [row_major("u8", (size,)).to_proto() for size in sizes]
    call = new_tuple(module, identifier, (), shapes, NAME)
    call.opcode = "custom-call"
    call.custom_call_target = registry.kernels()[KERNEL].target
    call.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
    attributes = {"abi": registry.abi(), "library": registry.own_version(), "bytes": sizes}
    call.backend_config = to_text(attributes).encode()
    return call


def _first(entry: ComputationProto) -> list[InstructionProto]:
    """Instructions that wait for no other that does work."""
    without_work: set[int] = set()
    first: list[InstructionProto] = []
    for instruction in entry.instructions[:]:
        waits = {*instruction.operand_ids[:], *instruction.control_predecessor_ids[:]} - without_work
        if waits:
            continue
        if instruction.opcode in _WITHOUT_WORK:
            without_work.add(instruction.id)
        else:
            first.append(instruction)
    return first
