"""Every report of a process, in little memory: a program that compiles for days is not to notice."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hlo_dispatch.report import Report

MOST_BYTES = 8 << 20
"""Of compressed reports: some fifty thousand regions. What comes later is counted only."""
_MOST_FAILURES = 100


@dataclass(frozen=True)
class Totals:
    """What the reports come to, those that were not kept included."""

    modules: int = 0
    regions: int = 0
    """That a kernel could have taken."""
    dispatched: int = 0
    seconds: float = 0.0
    """Spent in the pass."""
    saved: float | None = None
    """Seconds that running every module once saves, as far as it was measured; None: nothing was."""
    failures: int = 0
    """Modules that the pass failed on."""


class AccumulatedReports:
    """The reports so far; safe to use from several threads."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.left_out = 0
        """Reports that there was no room for."""
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._reports: list[bytes] = []
        self._bytes = 0

    def add(self, report: Report) -> None:
        """Keep a report."""
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
        """Note a module that the pass failed on."""
        with self._lock:
            self.totals = replace(self.totals, modules=self.totals.modules + 1)
            self._fail(sentence)

    def _fail(self, sentence: str) -> None:
        self.totals = replace(self.totals, failures=self.totals.failures + 1)
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(sentence)

    def reports(self) -> Iterator[dict[str, Any]]:
        """The kept reports as plain values, in the order in which they came."""
        with self._lock:
            kept = list(self._reports)
        for compressed in kept:
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
