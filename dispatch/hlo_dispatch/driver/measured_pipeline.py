"""Pipeline with measurements of this machine: policies "measure" and "stored".

Connects the packages: the store has the measurements, the tuner measures, the pipeline makes the candidates' modules.
A process reads the store once and shares the measurements among its pipelines.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

from hlo_dispatch.autotune.compare.measure import QUICK, Effort
from hlo_dispatch.autotune.counters import TuningCounters
from hlo_dispatch.autotune.progress import ProgressLine
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.autotune.tuner import Tuner, TuningProgress, silent
from hlo_dispatch.driver.single_call import dispatch_single_call
from hlo_dispatch.errors import PolicyError
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock
from hlo_dispatch.selection.context import Context, this_context
from hlo_dispatch.selection.decide import MEASURING
from hlo_dispatch.selection.measurements import KnownMeasurements
from hlo_dispatch.vendor import registration, users_kernels

BUDGET_VARIABLE = "HLO_DISPATCH_MEASURE_SECONDS"
BUDGET = 5.0
"""Seconds of measuring for one module; the cost model decides the remaining regions, which a later compile measures."""

_lock = ForkSafeLock()
_knowledge: dict[tuple[Path, Context], KnownMeasurements] = {}
_given_up: set[str] = set()
tally = TuningCounters()
"""Counts of the measurements that compiling has made in this process."""


def with_measurements(pipeline: Pipeline) -> Pipeline:
    """The pipeline with measurements, if its policy uses them."""
    if pipeline.policy not in MEASURING:
        return pipeline
    store, context = Store(), this_context()
    knowledge = knowledge_of(store, context)
    if pipeline.policy == "stored":
        return pipeline.with_knowledge(knowledge)
    tuner = tuner_for(pipeline, store, knowledge, QUICK, budget(), silent)
    tuner.tally, tuner.given_up = tally, _given_up
    tuner.remembers = False
    return pipeline.with_knowledge(knowledge, lambda module: replace(tuner, step=ProgressLine(module)).for_one_module())


def tuner_for(
    pipeline: Pipeline,
    store: Store,
    knowledge: KnownMeasurements,
    effort: Effort,
    seconds: float | None,
    step: TuningProgress,
) -> Tuner:
    """A tuner whose candidates are made by `pipeline`.

    Args:
        seconds: for one module; None: as long as it takes.
    """
    plain = pipeline.with_knowledge(KnownMeasurements())

    def prepare() -> None:
        executable.start()
        registration.register(users_kernels.open_handlers(pipeline.table))

    return Tuner(
        store=store,
        context=this_context(),
        knowledge=knowledge,
        effort=effort,
        build=lambda extracted, default, variant: dispatch_single_call(plain, extracted, default, variant),
        threads=pipeline.machine.threads,
        split=pipeline.split,
        budget=seconds,
        step=step,
        prepare=prepare,
    )


def knowledge_of(store: Store, context: Context) -> KnownMeasurements:
    """The store's measurements of this context, read once."""
    key = store.directory, context
    with _lock:
        if key not in _knowledge:
            _knowledge[key] = KnownMeasurements(store.known(context))
        return _knowledge[key]


def reload_knowledge(store: Store, context: Context) -> None:
    """Read the store again, which changed outside of a compile."""
    with _lock:
        known = _knowledge.get((store.directory, context))
    if known is not None:
        known.replace(store.known(context))
    _given_up.clear()


def budget() -> float:
    """Seconds that a compile may measure for.

    Raises:
        PolicyError: the environment variable is not a number of seconds.
    """
    text = os.environ.get(BUDGET_VARIABLE, "")
    if not text:
        return BUDGET
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise PolicyError(f"{BUDGET_VARIABLE} is {text!r}, which is not a number of seconds; unset it, or say 5")
    return seconds
