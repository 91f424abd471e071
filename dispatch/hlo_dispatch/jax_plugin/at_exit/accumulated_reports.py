"""Accumulated reports of a process, compressed in bounded memory for programs that compile for days."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hlo_dispatch.report import Report

MOST_BYTES = 8 << 20
"""Maximum bytes of compressed reports, about fifty thousand regions. Later ones are only counted."""
_MOST_FAILURES = 100


@dataclass(frozen=True)
class Totals:
    """Totals of all reports, those without room included."""

    modules: int = 0
    regions: int = 0
    """Number of regions that a kernel could compute."""
    dispatched: int = 0
    seconds: float = 0.0
    """Seconds in the pass."""
    saved: float | None = None
    """Measured seconds that one run of every module saves; None: nothing was measured."""
    failures: int = 0
    """Number of modules on which the pass failed."""


class AccumulatedReports:
    """The reports so far; thread-safe."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.left_out = 0
        """Number of reports without room."""
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._reports: list[bytes] = []
        self._bytes = 0

    def add(self, report: Report) -> None:
        """Add a report."""
        compressed = zlib.compress(json.dumps(report.to_dict(), separators=(",", ":")).encode(), level=1)
        with self._lock:
            self.totals = _with(self.totals, report)
            if report.failure:
                self._fail(report.failure)
            if self._bytes + len(compressed) > MOST_BYTES:
                self.left_out += 1
                return
            self._bytes += len(compressed)
            self._reports.append(compressed)

    def add_failure(self, sentence: str) -> None:
        """Add a module on which the pass failed."""
        with self._lock:
            self.totals = replace(self.totals, modules=self.totals.modules + 1)
            self._fail(sentence)

    def _fail(self, sentence: str) -> None:
        self.totals = replace(self.totals, failures=self.totals.failures + 1)
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(sentence)

    def reports(self) -> Iterator[dict[str, Any]]:
        """The reports as plain values, in the order of compilation."""
        with self._lock:
            accumulated = list(self._reports)
        for compressed in accumulated:
            yield json.loads(zlib.decompress(compressed))


def _with(totals: Totals, report: Report) -> Totals:
    saved = totals.saved if report.saved is None else (totals.saved or 0.0) + report.saved
    return replace(
        totals,
        modules=totals.modules + 1,
        regions=totals.regions + len(report.candidates),
        dispatched=totals.dispatched + len(report.dispatched),
        seconds=totals.seconds + report.seconds,
        saved=saved,
    )
