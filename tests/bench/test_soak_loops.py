"""The soak's loops compute what NumPy does, whether or not their calls are dispatched."""

from __future__ import annotations

import gc

import jax
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.bench.soak import loops
from hlo_dispatch.bench.soak.worker import allocated, resident

pytestmark = pytest.mark.any_python


def test_every_kind_is_right() -> None:
    generator = np.random.default_rng(0)
    dispatched = set()
    for number, kind in enumerate(loops.KINDS):
        program = loops.make(number, generator, count=3)
        with hlo_dispatch.enabled(policy="always"):
            compiled = jax.jit(program.function).lower(*program.inputs).compile()
        assert program.difference(compiled(*program.inputs)) < program.tolerance, program.name
        if "hlo_dispatch." in compiled.as_text():
            dispatched.add(kind)
    assert len(dispatched) > len(loops.KINDS) / 2, {kind.__name__ for kind in set(loops.KINDS) - dispatched}


def test_calls_leave_no_memory_behind() -> None:
    """Tasks that oneTBB mails to an empty slot of an arena stay until the arena ends."""
    program = loops.make(0, np.random.default_rng(0), count=100_000)
    with hlo_dispatch.enabled(policy="always"):
        compiled = jax.jit(program.function).lower(*program.inputs).compile()
    jax.block_until_ready(compiled(*program.inputs))
    before = resident()
    jax.block_until_ready(compiled(*program.inputs))
    assert resident() - before < 12 << 20


@pytest.mark.skipif(not allocated(), reason="this C library does not say what its malloc has given out")
def test_programs_that_are_dropped_leave_no_memory_behind() -> None:
    """Of each of them some hundred kilobytes are code, plans and buffers."""

    def compile_and_drop(count: int) -> int:
        generator = np.random.default_rng(0)
        for number in range(count):
            program = loops.make(number % 3, generator, count=3)
            with hlo_dispatch.enabled(policy="always"):
                compiled = jax.jit(lambda *inputs, f=program.function: f(*inputs)).lower(*program.inputs).compile()
            assert program.difference(compiled(*program.inputs)) < program.tolerance
        del compiled
        jax.clear_caches()
        gc.collect()
        return allocated()

    before = compile_and_drop(6)
    assert compile_and_drop(12) - before < 1 << 20
