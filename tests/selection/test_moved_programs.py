"""Accumulation code motion in whole-program trials: stock as XLA made it is the candidate to beat, and comes back."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from measured_programs import compiled, forget

from hlo_dispatch.analysis.loop_nest import executions
from hlo_dispatch.autotune import tuner as tuner_module
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare.measure import Task, Unmeasurable
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.ir.module import Module
from hlo_dispatch.selection.measurements import STOCK, Measurement

pytestmark = pytest.mark.usefixtures("_own_store")
X, W = jnp.linspace(-1, 1, 9 * 8 * 64).reshape(9, 8, 64), jnp.linspace(-0.1, 0.1, 64 * 64).reshape(64, 64)


def recurrent(w: jax.Array, x: jax.Array) -> jax.Array:
    def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ w + h), None

    return jax.lax.scan(step, jnp.zeros((8, 64)), x)[0].sum()


gradient = jax.grad(recurrent)  # its backward pass accumulates the gradient of the weights


def accumulates(module: Module) -> bool:
    """Whether a loop adds to an array as large as the weights."""
    times = executions(module)
    for computation in module.proto.computations:
        if times.get(computation.id, 0) > 1:
            root = next(i for i in computation.instructions if i.id == computation.root_id)
            results = {i.id: i for i in computation.instructions}
            for operand in root.operand_ids:
                result = results[operand]
                is_square = list(result.shape.dimensions) == [64, 64]
                if is_square and result.opcode not in ("get-tuple-element", "parameter"):
                    return True
    return False


def opcodes(executable: jax.stages.Compiled) -> list[str]:
    return re.findall(r" = \S+ ([a-z-]+)\(", executable.as_text())


class Trials:
    """Stands for whole-program trials; notes whether each side of them accumulates in its loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_faster: bool) -> None:
        self.sides: list[tuple[bool, list[bool]]] = []
        self._is_faster = is_faster
        monkeypatch.setattr(whole_program_trial, "compare", self.compare)
        monkeypatch.setattr(tuner_module, "measure", self.measure)

    def measure(self, task: Task, *_: Any, **__: Any) -> Measurement:
        raise Unmeasurable("regions are not what is tested")

    def compare(self, stock: Module, variants: Any, *, is_final: bool, **_: Any) -> Measurement:
        tried = dict(variants)
        self.sides.append((accumulates(stock), [accumulates(module) for module in tried.values()]))
        name = next(iter(tried))
        seconds = {STOCK: 2e-3, name: 1e-3 if self._is_faster else 3e-3}
        chosen, gain = (name, 1e-3) if self._is_faster else (STOCK, 0.0)
        return Measurement(chosen, seconds, gain, thorough=is_final, kernel=whole_program_trial.ALL_KERNELS)


@pytest.mark.parametrize("is_faster", [True, False])
def test_the_trial_decides(store: Store, monkeypatch: pytest.MonkeyPatch, is_faster: bool) -> None:
    trials = Trials(monkeypatch, is_faster=is_faster)
    as_xla_made_it = compiled(gradient, W, X, policy="never")
    executable = compiled(gradient, W, X)
    assert trials.sides, "moved code is tried although no region gains"
    for stock, variants in trials.sides:
        assert stock
        assert variants
        assert not any(variants)
    assert (opcodes(executable) == opcodes(as_xla_made_it)) is not is_faster
    assert jnp.allclose(executable(W, X), as_xla_made_it(W, X), rtol=1e-5, atol=1e-5)
    # Another process reads the verdict.
    before = len(trials.sides)
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(store.directory))
    forget(store)
    assert opcodes(compiled(gradient, W, X, policy="stored")) == opcodes(executable)
    assert len(trials.sides) == before
