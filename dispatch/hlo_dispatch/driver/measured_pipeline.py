"""The pass together with what was measured on this machine: policies "measure" and "stored".

Puts the rooms together: the store knows, the tuner measures, the rewriter makes the candidates' modules. What is
known is read once in a process and shared by every pass of it.
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import replace
from pathlib import Path

from hlo_dispatch.autotune.compare.measure import QUICK, Effort
from hlo_dispatch.autotune.counters import Tally
from hlo_dispatch.autotune.progress import Line
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.autotune.tuner import Tuner, TuningProgress, silent
from hlo_dispatch.driver.single_call import one_call
from hlo_dispatch.errors import PolicyError
from hlo_dispatch.passes.partition.splitter import splitter
from hlo_dispatch.pipeline import Rewriter
from hlo_dispatch.selection.context import Context, this_context
from hlo_dispatch.selection.decide import MEASURING
from hlo_dispatch.selection.measurements import Knowledge
from hlo_dispatch.vendor import registration, users_kernels

BUDGET_VARIABLE = "HLO_DISPATCH_MEASURE_SECONDS"
BUDGET = 5.0
"""Seconds of measuring for one module; what is not reached is decided by the heuristic and measured another time."""

_lock = threading.Lock()
_knowledge: dict[tuple[Path, Context], Knowledge] = {}
_given_up: set[str] = set()
tally = Tally()
"""What compiling has measured in this process."""


def informed(rewriter: Rewriter) -> Rewriter:
    """The pass with what is known; the same pass where its policy does not ask for measurements."""
    if rewriter.policy not in MEASURING:
        return rewriter
    store, context = Store(), this_context()
    knowledge = knowledge_of(store, context)
    if rewriter.policy == "stored":
        return rewriter.knowing(knowledge)
    tuner = tuner_for(rewriter, store, knowledge, QUICK, budget(), silent)
    tuner.tally, tuner.given_up = tally, _given_up
    tuner.remembers, tuner.frozen = False, rewriter.frozen
    return rewriter.knowing(knowledge, lambda module: replace(tuner, step=Line(module)).for_one_module())


def tuner_for(
    rewriter: Rewriter, store: Store, knowledge: Knowledge, effort: Effort, seconds: float | None, step: TuningProgress
) -> Tuner:
    """A tuner whose candidates are made by `rewriter`.

    Args:
        seconds: for one module; None: as long as it takes.
    """
    plain = rewriter.knowing(Knowledge())

    def prepare() -> None:
        executable.start()
        registration.register(users_kernels.open_handlers(rewriter.table))

    return Tuner(
        store=store,
        context=this_context(),
        knowledge=knowledge,
        effort=effort,
        build=lambda extracted, default, variant: one_call(plain, extracted, default, variant),
        threads=rewriter.machine.threads,
        split=splitter(rewriter.table, rewriter.machine.threads),
        budget=seconds,
        step=step,
        prepare=prepare,
    )


def knowledge_of(store: Store, context: Context) -> Knowledge:
    """What the store says of this context, read once."""
    key = store.directory, context
    with _lock:
        if key not in _knowledge:
            _knowledge[key] = Knowledge(store.known(context))
        return _knowledge[key]


def read_again(store: Store, context: Context) -> None:
    """Forget what was read: the store was changed from outside of a compile."""
    with _lock:
        known = _knowledge.get((store.directory, context))
    if known is not None:
        known.replace(store.known(context))
    _given_up.clear()


def budget() -> float:
    """Seconds that a compile may measure for.

    Raises:
        PolicyError: the environment says something that is no number of seconds.
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
