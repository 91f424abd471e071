"""ISA cap: cost model, our own kernels and the store's key follow it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from environment import clean_environment
from hlo_dispatch.errors import PolicyError
from hlo_dispatch.process import machine as machine_module
from hlo_dispatch.process.machine import ISA_VARIABLE, this_machine

GREATEST = "avx2 fma avx_vnni avx512f avx512dq avx512_vnni avx512_bf16 avx512_fp16 amx_bf16"
PROGRAM = """
from hlo_dispatch.vendor import kernels, libraries, registry
from hlo_dispatch.selection.context import this_context
attributes = {"type": "f32", "abi": registry.abi(), "uplo": ord("L"), "library": libraries.own().version,
              "a_dims": [4, 4], "a_strides": [4, 1], "factor_dims": [4, 4], "factor_strides": [1, 4]}
planned = kernels.plan("blocked.cholesky", attributes)
sentence = getattr(planned, "sentence", "")
print(not sentence, sentence)
print(this_context().fingerprint)
"""


def played(name: str, flags: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv(ISA_VARIABLE, name)
    monkeypatch.setattr(machine_module.Path, "read_text", lambda _: f"model name\t: A CPU\nflags\t\t: {flags}\n")
    machine = this_machine.__wrapped__()
    assert machine.model == "A CPU"
    return sorted(machine.features)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("", GREATEST),
        ("AVX512_CORE_BF16", "avx2 fma avx512f avx512dq avx512_vnni avx512_bf16"),
        ("AVX512_CORE_VNNI", "avx2 fma avx512f avx512dq avx512_vnni"),
        ("AVX512_CORE", "avx2 fma avx512f avx512dq"),
        ("AVX2", "avx2 fma"),
        ("SSE41", ""),
    ],
)
def test_what_is_left_of_a_processor(monkeypatch: pytest.MonkeyPatch, name: str, left: str) -> None:
    assert played(name, GREATEST, monkeypatch) == sorted(left.split())
    # Nothing is played that is not there.
    assert played(name, "sse4_1 avx2", monkeypatch) == (["sse4_1"] if name == "SSE41" else ["avx2", "sse4_1"])


def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolicyError, match=r"HLO_DISPATCH_MAX_CPU_ISA is 'avx3'; unset it, or say one of AVX2, "):
        played("avx3", GREATEST, monkeypatch)


def answers(**variables: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=clean_environment(**variables), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_our_own_kernels_and_the_key_of_measurements() -> None:
    refused, key = answers(HLO_DISPATCH_MAX_CPU_ISA="AVX2")
    assert refused.startswith("False ")
    assert "this processor has no AVX-512" in refused
    if not {"avx512f", "avx512dq"} <= this_machine().features:
        return
    # A name that leaves AVX-512 in changes nothing for them; the key has what was left out, if that is there.
    taken, other = answers(HLO_DISPATCH_MAX_CPU_ISA="AVX512_CORE")
    assert taken.startswith("True")
    assert other != key
