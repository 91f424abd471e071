"""Comparison of one program compiled by stock XLA and by XLA with the pass, on the same inputs.

Also: one HLO module, run exactly as it is. XLA compiles no HLO text through JAX, but its own hook takes
whatever module a callback returns, so a program of the same signature is compiled and exchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import xla

import hlo_dispatch
from hlo_dispatch.report import Report

# Largest difference, relative to the largest value of the result (patterns/anchors.yaml, numerics).
TOLERANCES = {"float32": 2e-5, "bfloat16": 3e-2, "float16": 6e-3, "complex64": 2e-5, "float64": 1e-12}

# The same optimized HLO, its code made much faster: not optimized by LLVM, and without MLIR where XLA has another way.
# For what is compared with, not tested, and for programs of which everything that is tested is inside calls.
QUICKLY: dict[str, Any] = {"xla_backend_optimization_level": 0}
_THOROUGHLY: dict[str, Any] = {"xla_backend_optimization_level": 3}  # as without options
if jax.__version_info__ < (0, 12):
    QUICKLY["xla_cpu_use_fusion_emitters"] = False


@dataclass(frozen=True)
class Both:
    """What a program gave stock and dispatched."""

    stock: list[np.ndarray]
    dispatched: list[np.ndarray]
    report: Report
    """Of the dispatched compile."""
    text: str
    """The dispatched executable's optimized HLO."""

    @property
    def calls(self) -> int:
        """How many kernel calls the dispatched program has, members of call groups included."""
        return self.text.count('custom_call_target="hlo_dispatch.') + sum(self.sequences) - len(self.sequences)

    @property
    def sequences(self) -> list[int]:
        """How many members each call group has."""
        return [int(count) for count in re.findall(r"\bmembers = (\d+) : i64", self.text)]


def run_both(
    program: Callable, *arguments, policy: str = "always", as_users_have_it: bool = False, **jit_options
) -> Both:
    """Compile and run `program` twice, each run on fresh copies of the arguments (they may be donated).

    Args:
        as_users_have_it: LLVM optimizes both programs; for tests that ask for their very bits.
    """
    results = []
    report, text = Report("none"), ""
    lowered = jax.jit(lambda *inputs: program(*inputs), **jit_options).lower(*arguments)
    # With options, JAX does not keep what it compiles, so that one lowering serves both.
    options = _THOROUGHLY if as_users_have_it else QUICKLY
    for enabled in (False, True):
        if enabled:
            before = hlo_dispatch.statistics()
            with hlo_dispatch.enabled(policy=policy):
                compiled = lowered.compile(compiler_options=options)
            assert hlo_dispatch.statistics().failures == before.failures
            assert hlo_dispatch.statistics().modules > before.modules, "the pass did not see the module"
            report, text = hlo_dispatch.reports()[-1], compiled.as_text()
        else:
            compiled = lowered.compile(compiler_options=options)
        fresh = jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), arguments)
        results.append([np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*fresh))])
    return Both(results[0], results[1], report, text)


def assert_agree(both: Both, tolerance: float | None = None) -> None:
    """Fail unless every output of the two runs is the same within `tolerance` (default: by element type)."""
    assert len(both.stock) == len(both.dispatched)
    for number, (stock, dispatched) in enumerate(zip(both.stock, both.dispatched, strict=True)):
        assert stock.dtype == dispatched.dtype
        assert_close(dispatched, stock, tolerance, f"output {number}")


def assert_close(got: np.ndarray, wanted: np.ndarray, tolerance: float | None = None, what: str = "result") -> None:
    """Fail unless `got` is `wanted`: finite where it is finite, and near it relative to its largest value."""
    if not np.issubdtype(wanted.dtype, np.inexact) and wanted.dtype.name not in TOLERANCES:
        np.testing.assert_array_equal(got, wanted, what)
        return
    if tolerance is None:
        tolerance = TOLERANCES[wanted.dtype.name]
    if np.iscomplexobj(wanted):
        got, wanted = (np.stack([value.real, value.imag]) for value in (got, wanted))
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    assert got.shape == wanted.shape, what
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted), f"{what}: NaN in other places")
    infinite = np.isinf(wanted)
    np.testing.assert_array_equal(got[infinite], wanted[infinite], f"{what}: infinities")
    finite = np.isfinite(wanted)
    if not finite.any():
        return
    scale = max(1.0, float(np.abs(wanted[finite]).max()))
    difference = float(np.abs(got[finite] - wanted[finite]).max())
    assert difference <= tolerance * scale, f"{what} differs by {difference:.3g} where the largest is {scale:.3g}"


def run_module(serialized: bytes, inputs: Sequence[np.ndarray], results) -> list[np.ndarray]:
    """Run a serialized HloModuleProto, as it is, on `inputs`.

    Args:
        results: what it returns: a ShapeDtypeStruct, or a tuple of them.
    """
    # The pass registers the kernels' targets the first time it is installed.
    with hlo_dispatch.enabled(policy="never"):
        pass
    xla.register_hlo_module_transformation(lambda _: serialized, name="substitute", platforms="cpu")
    try:
        placeholder = jax.jit(
            lambda *_: jax.tree.map(lambda result: jax.lax.full(result.shape, 0, result.dtype), results),
            keep_unused=True,
        )
        # Without MLIR XLA has no scatter left where it generates code.
        compiled = placeholder.lower(*inputs).compile(_THOROUGHLY if b"scatter" in serialized else QUICKLY)
    finally:
        xla.clear_hlo_module_transformation("substitute", platforms="cpu")
    return [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*inputs))]
