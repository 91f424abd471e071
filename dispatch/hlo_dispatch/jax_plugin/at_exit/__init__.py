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
    """This process's report in the making."""

    def __init__(self, destination: Destination, statistics: Statistics) -> None:
        self.destination, self.statistics = destination, statistics
        self.kept = AccumulatedReports()

    def forked(self) -> None:
        """In the child: what the parent compiled is the parent's to tell."""
        self.kept = AccumulatedReports()
        self.destination = self.destination.of_child()

    def write(self) -> None:
        """Write the report and say so; nothing is raised while the interpreter ends."""
        if self.destination.is_child and not self.kept.totals.modules:
            return  # a worker that compiled nothing has nothing to say
        try:
            # Drawing takes a while to load, and nobody waits for it now.
            from hlo_dispatch.jax_plugin.at_exit.document import document, summary

            content = document(self.kept, self.statistics(), is_page=self.destination.is_page)
            written = self.destination.write(content)
            _say(f"hlo-dispatch: {summary(self.kept.totals)}; report: {written}")
        except Exception as error:
            _say(f"hlo-dispatch: the report of {VARIABLE} could not be written: {' '.join(str(error).split())}")


_lock = threading.Lock()
_run: _Run | None = None
_asked = False


def begin(statistics: Statistics) -> None:
    """Keep reports from here on if the environment asks for it; only the first call in a process counts.

    Args:
        statistics: what the pass did, as plain values, asked when the process ends.
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
    """Keep one module's report, if any are kept."""
    run = _run
    if run is not None:
        run.kept.add(report)


def add_failure(sentence: str) -> None:
    """Note that the pass failed on a module, which stayed as XLA made it."""
    run = _run
    if run is not None:
        run.kept.add_failure(sentence)


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held the parent's
    if _run is not None:
        _run.forked()


def _say(line: str) -> None:
    # Whoever closed standard error does not want to know.
    if sys.stderr is not None and not sys.stderr.closed:
        print(line, file=sys.stderr, flush=True)
