"""Public API without JAX: `rewrite` for any compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from hlo_dispatch.driver.measured_pipeline import with_measurements
from hlo_dispatch.driver.profile import Profile, profiling
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.language import is_stablehlo
from hlo_dispatch.pattern import load_tables, tables_or_default
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.report import Report
from hlo_dispatch.selection.decide import policy_or_default
from hlo_dispatch.vendor import kernels

_POLICY = "heuristic"
"""Where neither an argument nor the environment names one."""


@dataclass(frozen=True)
class Rewritten:
    """What `rewrite` made of a module."""

    proto: bytes | None
    """The new serialized HloModuleProto; None where nothing was dispatched."""
    report: Report
    original: bytes
    """The serialized module that came in."""

    @property
    def text(self) -> str:
        """HLO text of the result (of the module that came in, where nothing changed)."""
        return hlo_text.to_text(self.proto if self.proto is not None else self.original)


def rewrite(
    module: bytes | str,
    *,
    tables: Sequence[str | Path] | None = None,
    policy: str | None = None,
    details: bool = False,
    prepare_constants: bool = False,
) -> Rewritten:
    """Rewrite one optimized HLO module: supported regions become custom-calls.

    Args:
        module: a serialized HloModuleProto, or HLO text. Calls of an unoptimized module
            are inlined first; `hlo_dispatch.optimize` has XLA optimize it, and StableHLO.
        tables: pattern tables of your own, besides the shipped ones; None: those that HLO_DISPATCH_TABLES names.
        policy: "heuristic", "always" or "never"; "stored" decides by what was measured on this machine, "measure"
            also measures what was not, with jax. None: what HLO_DISPATCH_POLICY says, or "heuristic".
        details: the report includes near misses of activations, and both modules.
        prepare_constants: compute what depends on large constants alone, and prepack weights among them, for machines
            like this one; needs jax, as compiling does.

    Raises:
        ModuleError: the module does not parse.
        TableError: a table is wrong.
        PolicyError: there is no such policy.
    """
    serialized = _serialized(module)
    made = replace(_pipeline_or_default(tables, policy), preprocesses_constants=prepare_constants, inlines_calls=True)
    proto, report = with_measurements(made).run(serialized, details=details)
    return Rewritten(proto, report, serialized)


def profiled(
    module: bytes | str, *, tables: Sequence[str | Path] | None = None, policy: str | None = None
) -> tuple[Report, Profile]:
    """The detailed report of `rewrite`, and what each entry of the tables cost. Arguments and errors as there."""
    serialized = _serialized(module)
    # The first support query loads the vendor library, which is no entry's cost.
    kernels.warm_up()
    instrumented, profile = profiling(load_tables(tables_or_default(tables)), policy_or_default(policy, _POLICY))
    _, report = replace(instrumented, inlines_calls=True).run(serialized, details=True)
    return report, profile


def _serialized(module: bytes | str) -> bytes:
    if is_stablehlo(module):
        raise ModuleError("this is StableHLO, which XLA has to optimize first: rewrite(hlo_dispatch.optimize(program))")
    return hlo_text.from_text(module) if isinstance(module, str) else module


def _pipeline_or_default(tables: Sequence[str | Path] | None, policy: str | None) -> Pipeline:
    return pipeline(tables_or_default(tables), policy_or_default(policy, _POLICY))


def pipeline(tables: tuple[str, ...], policy: str) -> Pipeline:
    """The pipeline for these tables and this policy; made once, until one of the files changes."""
    return _made(load_tables(tables).fingerprint, tables, policy)


@lru_cache(maxsize=16)
def _made(fingerprint: str, tables: tuple[str, ...], policy: str) -> Pipeline:
    # Making one takes longer than most passes.
    return Pipeline.make(load_tables(tables), policy)
