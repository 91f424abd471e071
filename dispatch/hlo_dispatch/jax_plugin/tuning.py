"""`tune`: thorough measurement of every region of a program, in every variant, and a table of the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.compare.measure import THOROUGH
from hlo_dispatch.autotune.progress import ProgressLine
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.autotune.tuner import MeasuredRegion, TuningProgress
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.driver.frozen_build import FrozenModule
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.jax_plugin import hook
from hlo_dispatch.jax_plugin.explaining import FrozenFunction, optimized
from hlo_dispatch.jax_plugin.tuning_result import Tuned, TunedRegion
from hlo_dispatch.pattern import tables_or_default
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.report import Report
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.measurements import STOCK, KnownMeasurements


def tune(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Tuned:
    """Measure every region of `fn(*args, **kwargs)` in every variant, and store the results for this machine.

    Takes whatever `explain` takes. Its time is unlimited: `HLO_DISPATCH_MEASURE_SECONDS` limits measurements during
    compilation only. Programs that are compiled afterwards use the results.

    Raises:
        HloDispatchError: as for `explain`.
    """
    tables = hook.installed_tables()
    if isinstance(fn, FrozenFunction):
        module = fn.frozen_module(args, kwargs)
    else:
        module = optimized(fn, *args, **kwargs)
    tuned = tune_module(module, tables=tables, step=ProgressLine())
    hook.reconsider()
    return tuned


def tune_module(
    module: bytes | str | FrozenModule,
    *,
    tables: Sequence[str | Path] | None = None,
    seconds: float | None = None,
    validate_only: bool = False,
    step: TuningProgress = lambda what, done, count, left: None,
) -> Tuned:
    """Measure every region of an optimized module in every variant.

    Args:
        module: a serialized HloModuleProto, HLO text, or a module with frozen parameters.
        tables: pattern tables of your own; None: those that HLO_DISPATCH_TABLES names.
        seconds: time limit; None: unlimited.
        validate_only: only validate results; wrong variants are refused from now on, right ones are not stored.
        step: progress callback.

    Raises:
        ModuleError, TableError.
    """
    start = time.perf_counter()
    own = tables_or_default(tables)
    plain = _pipeline_for(module, own, "measure")
    store, context = Store(), this_context()
    # Without known measurements it requests all regions; thorough measurements of the store are not repeated.
    tuner = measured_pipeline.tuner_for(plain, store, KnownMeasurements(), THOROUGH, seconds, step)
    tuner.timed = not validate_only
    report = _report_of(module, plain.with_knowledge(tuner.knowledge, lambda module: tuner.for_one_module()))
    measured_pipeline.reload_knowledge(store, context)
    if validate_only:
        report = _report_of(module, measured_pipeline.with_measurements(_pipeline_for(module, own, "stored")))
    refused = [why for record in tuner.records for why in record.measured.refused.values()]
    return Tuned(
        report=report,
        regions=tuple(_region(record) for record in tuner.records),
        seconds=time.perf_counter() - start,
        unmeasurable=tuner.tally.unmeasurable,
        unclear=tuner.tally.unclear,
        failures=tuner.tally.failures,
        left=len(tuner.tally.unreached),
        reproducers=tuple(refused),
    )


def _pipeline_for(module: bytes | str | FrozenModule, tables: tuple[str, ...], policy: str) -> Pipeline:
    plain = pipeline(tables, policy)
    if isinstance(module, FrozenModule):
        return module.pipeline(plain)
    return replace(plain, preprocesses_constants=True, inlines_calls=True)


def _report_of(module: bytes | str | FrozenModule, pipeline: Pipeline) -> Report:
    """The pipeline's report of a module."""
    if isinstance(module, FrozenModule):
        report = module.split(pipeline).report
        assert report is not None, "freezing reports"
        return report
    return pipeline.run(hlo_text.from_text(module) if isinstance(module, str) else module)[1]


def _region(record: MeasuredRegion) -> TunedRegion:
    measured = record.measured
    return TunedRegion(
        count=record.region.count,
        formula=measured.formula,
        shape=measured.shape,
        kernel=measured.kernel,
        chosen=measured.chosen,
        seconds=dict(measured.seconds),
        gain=measured.gain if measured.chosen != STOCK else 0.0,
        noise=measured.noise,
        differences=dict(measured.differences),
        refused=dict(measured.refused),
        provisional=measured.provisional,
    )
