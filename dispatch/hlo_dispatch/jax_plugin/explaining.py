"""`explain` and `optimized`: compile a user's function to report on the pass, or to get its optimized module."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from hlo_dispatch.api import pipeline, rewrite
from hlo_dispatch.driver.frozen_build import FrozenModule, build
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin import entry_point
from hlo_dispatch.jax_plugin.hook import (
    enabled,
    installed,
    installed_pass,
    installed_policy,
    installed_tables,
)
from hlo_dispatch.jax_plugin.lowering import compile_afresh, compiled_stage, lowered_stage, name_of, refuse_arguments
from hlo_dispatch.jax_plugin.record import record
from hlo_dispatch.pattern import load_tables
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.report import Report


class FrozenFunction(ABC):
    """A function with frozen arguments: `explain` and `tune` take the module that it makes instead of lowering it."""

    @abstractmethod
    def frozen_module(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FrozenModule:
        """The optimized module of a call.

        Raises:
            HloDispatchError: the frozen arrays are gone.
        """


class FreezingFunction(ABC):
    """A function that freezes some of its arguments by itself: `explain` says which."""

    @abstractmethod
    def frozen_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """Sentences on such a call: which arguments are frozen, or can be, or why none is."""


_UNSEEN = "the pass saw nothing of this function: it failed (a warning says how), or the function's device is no CPU"


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Report of the pass on `fn`: compiles `fn(*args, **kwargs)` again and returns its report.

    `fn` is a function, plain or jitted (by `jax.jit` with static or donated arguments, `eqx.filter_jit`, `nnx.jit`),
    or what lowering one gave (`jax.stages.Lowered`), without arguments then; or what `freeze` returned: the report is
    that of the program with preprocessed weights. Nothing is run, and what JAX has compiled
    already stays as it is. A `jax.stages.Compiled` is not compiled again: if it is stock XLA's, the report says what
    the pass does with its module. Outside of `install()` the pass is enabled for this compile only. The report has
    details: the nearest misses, and both modules, which `write_page` draws. Of several modules it is the largest's.
    Of a function of `hlo_dispatch.jit` it is the program's without frozen arguments, and says which can be frozen.

    Raises:
        HloDispatchError: `fn` is something else, or a Compiled that was dispatched; the weights of a frozen function
            are gone.
    """
    if isinstance(fn, FrozenFunction):
        split = build(fn.frozen_module(args, kwargs), active_pass(), details=True)
        assert split.report is not None, "freezing reports"
        return split.report
    compiled = compiled_stage(fn)
    if compiled is not None:
        refuse_arguments(fn, args, kwargs)
        tables, policy = installed_tables(), installed_policy()
        return rewrite(_stock(compiled), tables=tables, policy=policy, details=True, prepare_constants=True).report
    with _pass_enabled():
        lowered = lowered_stage(fn, args, kwargs)
        with record.detailed() as fresh:
            compile_afresh(lowered)
    if not fresh:
        raise HloDispatchError(_UNSEEN)
    # Other threads may be compiling, too.
    name = name_of(lowered)
    own = [report for report in fresh if report.module == name]
    report = max(own or fresh, key=lambda report: report.instructions)
    if isinstance(fn, FreezingFunction):
        report = replace(report, frozen_arguments=fn.frozen_arguments(args, kwargs))
    return report


def optimized(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    """The serialized module of `fn(*args, **kwargs)` after XLA's optimizations, as the pass would get it.

    Takes what `explain` takes.

    Raises:
        HloDispatchError: as there.
    """
    compiled = compiled_stage(fn)
    if compiled is not None:
        refuse_arguments(fn, args, kwargs)
        return _stock(compiled)
    with _pass_enabled(policy="never"):
        lowered = lowered_stage(fn, args, kwargs)
        with record.captured() as modules:
            compile_afresh(lowered)
    if not modules:
        raise HloDispatchError(_UNSEEN)
    return _largest(modules, name_of(lowered)).to_bytes()


def active_pass() -> Pipeline:
    """The installed pass, or the one that the environment names.

    Installs nothing, so JAX's caches stay valid.
    """
    entry_point.initialize()
    return installed_pass() or pipeline(installed_tables(), installed_policy())


def _stock(compiled: Any) -> bytes:
    """The optimized module of an executable without kernel calls.

    Raises:
        HloDispatchError: it has kernel calls, or the executable does not contain its module.
    """
    executable = compiled.runtime_executable()
    modules: list[Any] = executable.hlo_modules() if executable is not None else []
    if not modules:
        raise HloDispatchError("this Compiled does not say what it is made of: pass the function and its arguments")
    module = _largest([module.as_serialized_hlo_module_proto() for module in modules])
    ours = {kernel.target for kernel in load_tables(installed_tables()).kernels.values()}
    if not ours.isdisjoint(module.custom_call_targets):
        raise HloDispatchError(
            "this Compiled was dispatched when it was compiled, and what XLA had made before is gone: pass the "
            "function and its arguments, or its Lowered (hlo_dispatch.reports() has what was decided then)"
        )
    return module.to_bytes()


def _largest(serialized: Sequence[bytes], name: str = "") -> Module:
    """The largest of these modules, or of those with this name, if any has it."""
    modules = [Module.from_bytes(one) for one in serialized]
    return max(
        [module for module in modules if module.name == name] or modules, key=lambda module: module.instruction_count
    )


def _pass_enabled(policy: str | None = None) -> AbstractContextManager[None]:
    """Enable the pass inside the block, unless it is installed."""
    entry_point.initialize()
    return contextlib.nullcontext() if installed() else enabled(policy=policy)
