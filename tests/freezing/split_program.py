"""A program partitioned by its frozen parameters; prologue and steady-state program run as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.autotune.run.split_executable import SplitExecutable
from hlo_dispatch.driver.frozen_build import FrozenModule, build
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.vendor import registration


@dataclass(frozen=True)
class Halves:
    """What the whole program gave, and what its halves gave."""

    split: Split
    stock: list[np.ndarray]
    got: list[np.ndarray]

    @property
    def prepared(self) -> list[str]:
        """Shapes of what is prepared, as text without layouts."""
        return [str(value.shape).partition("{")[0] for value in self.split.preprocessed]

    def opcodes(self, *, program: bool) -> set[str]:
        """Of every instruction of one half, those inside fusions included."""
        module = self.split.program if program else self.split.prologue
        assert module is not None
        return {i.opcode for i in module.instructions}


def optimized(program: Callable[..., Any], arguments: Sequence[Any], donated: Sequence[int] = ()) -> Module:
    """Stock XLA's module, with every argument a parameter, in order."""
    return _module(_compiled(program, arguments, donated))


def _compiled(program: Callable[..., Any], arguments: Sequence[Any], donated: Sequence[int] = ()) -> Any:
    jitted = jax.jit(lambda *inputs: program(*inputs), keep_unused=True, donate_argnums=tuple(donated))
    return jitted.lower(*arguments).compile()


def _module(compiled: Any) -> Module:
    return Module.from_bytes(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())


def halves(
    program: Callable[..., Any],
    *arguments: Any,
    frozen: Sequence[int] = (0,),
    policy: str = "always",
    may_be_activations: bool = False,
    again: Sequence[Sequence[Any]] = (),
) -> Halves:
    """Cut the program and run it, whole and in two; `frozen` are numbers of arguments, which are arrays.

    Args:
        again: more arguments of the same shapes to run both with.
    """
    runs = [tuple(jnp.asarray(argument) for argument in one) for one in (arguments, *again)]
    executable.start()
    registration.register(())
    whole = _compiled(program, runs[0])
    frozen_module = FrozenModule(_module(whole), frozenset(frozen), may_be_activations=may_be_activations)
    split = build(frozen_module, pipeline((), policy))
    parts = SplitExecutable(split)
    stock = [np.asarray(value) for one in runs for value in jax.tree.leaves(whole(*one))]
    got = [np.asarray(value) for one in runs for value in parts(one)]
    return Halves(split, stock, got)


def assert_equal(found: Halves, tolerance: float = 2e-5) -> None:
    """Both gave the same, relative to the largest value; what is not finite is so in both."""
    assert len(found.got) == len(found.stock)
    for got, stock in zip(found.got, found.stock, strict=True):
        assert got.dtype == stock.dtype
        assert got.shape == stock.shape
        wide, wanted = got.astype("float64"), stock.astype("float64")
        np.testing.assert_array_equal(np.isnan(wide), np.isnan(wanted))
        scale = np.nanmax(np.abs(wanted), initial=1e-30) if np.isfinite(wanted).all() else 1.0
        np.testing.assert_allclose(wide, wanted, rtol=tolerance, atol=tolerance * scale)
