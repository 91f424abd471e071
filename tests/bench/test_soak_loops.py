"""The soak's loops compute what NumPy does, whether or not their calls are dispatched."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.bench.soak import loops
from hlo_dispatch.bench.soak.worker import resident

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
