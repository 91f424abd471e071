"""Stock fallback of frozen programs: where the pass fails, stock XLA's program is built, and the failure is counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from hlo_dispatch.driver.frozen_build import FrozenModule, build
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.jax_plugin.hook import leave_to_stock
from hlo_dispatch.jax_plugin.record import record
from hlo_dispatch.passes.partition.split_at_frontier import without_prologue
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.environment_switches import is_strict
from hlo_dispatch.report import Report

_logger = logging.getLogger("hlo_dispatch")
_Result = TypeVar("_Result")


def attempted_or_skipped(attempt: Callable[[], _Result], what: str) -> _Result | None:
    """Run an optional step of freezing; where it fails, count and log that, and return None.

    Raises:
        Exception: the failure, with HLO_DISPATCH_STRICT=1.
    """
    begin = time.perf_counter()
    try:
        return attempt()
    except Exception as error:
        record.fail(error)
        record.count(rewritten=False, failed=True, seconds=time.perf_counter() - begin)
        if is_strict():
            raise
        _logger.warning("hlo-dispatch failed at %s, and freezes without it (%s: %s)", what, type(error).__name__, error)
        return None


def built_or_stock(module: FrozenModule, pipeline: Pipeline, compiled: Callable[[Split], _Result]) -> _Result:
    """Build and compile a frozen program; where that fails, log it and compile the undispatched module.

    Args:
        compiled: compiles prologue and program, without deleting any array.

    Raises:
        Exception: the failure, with HLO_DISPATCH_STRICT=1; what compiling the undispatched module raises.
    """
    begin = time.perf_counter()
    seconds = 0.0
    report: Report | None = None
    failed = True
    try:
        split = build(module, pipeline)
        seconds = time.perf_counter() - begin
        result = compiled(split)
        failed, report = False, split.report
        if report is not None:
            record.keep(report)
        return result
    except Exception as error:
        leave_to_stock(error, module.module.to_bytes())
        return compiled(without_prologue(module.module, module.frozen))
    finally:
        is_rewritten = report is not None and len(report.dispatched) > 0
        record.count(rewritten=is_rewritten, failed=failed, seconds=seconds or time.perf_counter() - begin)
