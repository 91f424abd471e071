"""The rule of thumb for regions that were not measured, with where each of its numbers comes from."""

from __future__ import annotations

import math

from hlo_dispatch.match.match import Match
from hlo_dispatch.policy.machine import Machine

# A oneDNN call over its SYCL runtime costs 8 to 12 µs however small the primitive is; XLA's own loop does
# about 1 multiply-add per cycle at worst, so below this nothing can be won.
SMALLEST_CONVOLUTION = 200_000
# Plain f32 products: XLA's YNN kernels equal oneDNN; only a fused epilogue that XLA would run as a separate
# pass over the result pays for the call.
SMALLEST_DOT = 8_000_000
SMALLEST_EPILOGUE_BYTES = 256 * 1024


def worth_dispatching(match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
    """Whether the kernel is expected to beat XLA on this match, and the sentence why."""
    arithmetic = match.anchor.multiply_adds
    if match.anchor.node.opcode == "convolution":
        return _convolution(arithmetic, implementation)
    return _dot(match, arithmetic, machine)


def _convolution(arithmetic: int, implementation: str) -> tuple[bool, str]:
    if arithmetic < SMALLEST_CONVOLUTION:
        return False, f"{arithmetic:,} multiply-adds are too few to pay for a library call"
    if "gemm" in implementation:
        return False, f"oneDNN would unfold this convolution into a matrix product ({implementation})"
    return True, f"oneDNN's {implementation} convolutions beat XLA's"


def _dot(match: Match, arithmetic: int, machine: Machine) -> tuple[bool, str]:
    if arithmetic < SMALLEST_DOT:
        return False, f"{arithmetic:,} multiply-adds are too few to pay for a library call"
    half = match.anchor.source.element_type != "f32"
    if half:
        if machine.has_bf16_arithmetic:
            return True, f"{match.anchor.source.element_type} products without XLA's widening passes"
        return False, "this CPU has no bf16 arithmetic: XLA's f32 product is as good"
    result_bytes = math.prod(size for size, _ in match.anchor.destination) * 4
    if any(post_op.kind == "eltwise" for post_op in match.post_ops) and result_bytes >= SMALLEST_EPILOGUE_BYTES:
        return True, "the activation costs no pass of its own"
    return False, "XLA's own f32 product is as fast, and the epilogue is cheap"
