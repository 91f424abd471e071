"""Report of a whole process, written when the process ends: `HLO_DISPATCH_REPORT=out.json` or `out.html`.

A program that enables the pass through the plugin entry point calls no `reports()`. So every module's report is kept
from the first one on, compressed, and written at exit, with one summary line on standard error.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.jax_plugin.at_exit.accumulated_reports import AccumulatedReports
from hlo_dispatch.jax_plugin.at_exit.destination import Destination
from hlo_dispatch.report import Report

VARIABLE = "HLO_DISPATCH_REPORT"
Statistics = Callable[[], Mapping[str, Any]]
_logger = logging.getLogger("hlo_dispatch")


class _Run:
    """This process's run report."""

    def __init__(self, destination: Destination, statistics: Statistics) -> None:
        self.destination, self.statistics = destination, statistics
        self.accumulated = AccumulatedReports()

    def forked(self) -> None:
        """In a forked child: start anew, since the parent reports its own modules."""
        self.accumulated = AccumulatedReports()
        self.destination = self.destination.of_child()

    def write(self) -> None:
        """Write the report and its summary line; raises nothing during interpreter shutdown."""
        if self.destination.is_child and not self.accumulated.totals.modules:
            return  # a worker process that compiled nothing writes nothing
        try:
            # A slow import, which compiles should not wait for.
            from hlo_dispatch.jax_plugin.at_exit.document import document, summary

            statistics = self.statistics()
            content = document(self.accumulated, statistics, is_page=self.destination.is_page)
            written = self.destination.write(content)
            frozen = statistics.get("frozen", 0)
            _say(f"hlo-dispatch: {summary(self.accumulated.totals, frozen)}; report: {written}")
        except Exception as error:
            _say(f"hlo-dispatch: the report of {VARIABLE} could not be written: {' '.join(str(error).split())}")


_lock = threading.Lock()
_run: _Run | None = None
_asked = False


def begin(statistics: Statistics) -> None:
    """Start accumulating reports if the environment asks for it; only the first call in a process counts.

    Args:
        statistics: returns the process's statistics as plain values; called at exit.
    """
    global _run, _asked
    name = os.environ.get(VARIABLE, "")
    with _lock:
        if _asked or not name:
            return
        _asked = True
        try:
            _run = _Run(Destination.of(name), statistics)
        except HloDispatchError as error:
            _logger.error("hlo-dispatch: no report will be written, %s=%s: %s", VARIABLE, name, error)
            return
    atexit.register(_run.write)
    os.register_at_fork(after_in_child=_forked)


def add(report: Report) -> None:
    """Add one module's report, if reports are accumulated."""
    run = _run
    if run is not None:
        run.accumulated.add(report)


def add_failure(sentence: str) -> None:
    """Add a failure of the pass on a module, which stayed stock XLA's."""
    run = _run
    if run is not None:
        run.accumulated.add_failure(sentence)


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held the parent's lock
    if _run is not None:
        _run.forked()


def _say(line: str) -> None:
    # The program may have closed standard error.
    if sys.stderr is not None and not sys.stderr.closed:
        print(line, file=sys.stderr, flush=True)
