"""Numbers of products inside a program's loops, as XLA made it and as the pass did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hlo_dispatch
from hlo_dispatch.analysis.loop_nest import executions
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.record import record

Function = Callable[..., Any]


def random(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape) / shape[-1] ** 0.5, dtype)


def products_in_loops(function: Function, *arguments: Any, may_copy: bool = False) -> tuple[int, int]:
    """Numbers of products inside loops, before and behind the pass, and whether results agree within rounding.

    Args:
        may_copy: whether loops may have copies that XLA's had not, as of what a kernel call would overwrite.
    """
    jax.clear_caches()
    with hlo_dispatch.enabled(policy="heuristic"), record.detailed() as reports:
        result = jax.jit(function).lower(*arguments).compile()(*arguments)
    report = max(reports, key=lambda report: report.instructions)
    stock = jax.jit(function).lower(*arguments).compile()(*arguments)
    for value, expected in zip(jax.tree.leaves(result), jax.tree.leaves(stock), strict=True):
        assert value.dtype == expected.dtype
        scale = float(jnp.abs(expected).max()) + 1e-6
        tolerance = 0.02 if value.dtype == jnp.bfloat16 else 1e-5
        assert float(jnp.abs(value.astype(float) - expected.astype(float)).max()) <= tolerance * scale
    assert report.before is not None
    before, after = (_in_loops(serialized) for serialized in (report.before, report.after or report.before))
    assert may_copy or after.copies <= before.copies  # of what only the old state had
    return before.products, after.products


class InLoops(NamedTuple):
    """Numbers of a module's instructions inside loops."""

    products: int
    copies: int


def _in_loops(serialized: bytes) -> InLoops:
    module = Module.from_bytes(serialized)
    times = executions(module)
    products, copies = 0, 0
    for computation in module.proto.computations:
        for instruction in computation.instructions if times.get(computation.id, 0) > 1 else ():
            called = (module.computations[c] for c in instruction.called_computation_ids)
            fused = [i for c in called for i in c.instructions] if instruction.opcode == "fusion" else []
            is_call = instruction.custom_call_target.startswith("hlo_dispatch")
            products += sum(i.opcode == "dot" or is_call for i in (instruction, *fused))
            copies += instruction.opcode == "copy" and len(instruction.shape.dimensions) > 0
    return InLoops(products, copies)
