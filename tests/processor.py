"""Requirements of tests on the processor: tests that need more are skipped, with the reason.

What a library can do is the library's answer; only where a library chooses by the processor is the processor asked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.process.machine import this_machine
from hlo_dispatch.vendor import kernels, libraries, registry

HAS_AVX512 = {"avx512f", "avx512dq"} <= this_machine().features

needs_avx512 = pytest.mark.skipif(not HAS_AVX512, reason="this processor has no AVX-512")


@lru_cache(maxsize=4)
def lacks(dtype: str) -> str:
    """Why oneDNN multiplies no matrices of this element type ("bf16") here; "" where it does."""
    spec: dict[str, Any] = {"abi": registry.abi(), "library": "", "scratch": 0}
    for role in ("src", "weights", "dst"):
        spec |= {f"{role}_type": dtype, f"{role}_dims": [64, 64], f"{role}_strides": [64, 1]}
    planned = kernels.plan("onednn.matmul", spec)
    return f"no arithmetic in {dtype} on this processor: {planned.sentence}" if isinstance(planned, Refusal) else ""


@lru_cache(maxsize=1)
def lacks_integers() -> str:
    """Why oneDNN sums no products of eight bits exactly here; "" where it does."""
    spec: dict[str, Any] = {"abi": registry.abi(), "library": "", "scratch": 0, "strides": [1, 1], "dilations": [0, 0]}
    for role, kind in (("src", "s8"), ("weights", "s8"), ("dst", "f32")):
        spec |= {f"{role}_type": kind, f"{role}_dims": [64, 64, 1, 1], f"{role}_strides": [64, 1, 64, 64]}
    planned = kernels.plan("onednn.convolution", spec | {"padding_low": [0, 0], "padding_high": [0, 0]})
    return f"no sums of eight bits on this processor: {planned.sentence}" if isinstance(planned, Refusal) else ""


@lru_cache(maxsize=1)
def lacks_onemkl() -> str:
    """Why there is no oneMKL here; "" where there is."""
    found = libraries.mkl()
    return f"no oneMKL: {found.sentence}" if isinstance(found, Unavailable) else ""


def skip_without(dtype: str) -> None:
    """Skip the test where oneDNN computes nothing in this element type."""
    if lacks(dtype):
        pytest.skip(lacks(dtype))


def skip_emulated(dtype: str, sentence: str) -> None:
    """Skip where the processor has no arithmetic in this type, and the library does with what is otherwise slower."""
    if dtype == "bf16" and not this_machine().has_bf16_arithmetic:
        pytest.skip(f"this processor has no bf16 arithmetic: {sentence}")
