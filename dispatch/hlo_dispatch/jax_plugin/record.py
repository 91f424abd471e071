"""Process-wide record of the pass: statistics, the latest reports, and captures for `explain` and `optimized`."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace

from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.jax_plugin import at_exit
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock
from hlo_dispatch.report import Report

_KEPT_REPORTS = 64


@dataclass(frozen=True)
class Statistics:
    """Statistics of the pass in this process."""

    modules: int = 0
    """Modules that the pass got."""
    rewritten: int = 0
    """Modules in which at least one region was dispatched."""
    failures: int = 0
    """Modules on which the pass failed: they are stock XLA's, or their constants are preprocessed in each call."""
    seconds: float = 0.0
    """Seconds in the pass, measurements included."""
    measured: int = 0
    """Regions that were measured."""
    measuring_failures: int = 0
    """Regions whose measurement failed: the cost model decided."""
    frozen: int = 0
    """Functions (by structure of their arguments) of which `jit` has frozen arguments now."""
    frozen_bytes: int = 0
    """Bytes of the values that it has preprocessed for them."""


class Record:
    """Statistics and reports of this process, behind one lock that is never held during other calls."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._capturing = ForkSafeLock()
        self._statistics = Statistics()
        self._reports: deque[Report] = deque(maxlen=_KEPT_REPORTS)
        self._detailed_reports: list[list[Report]] = []
        self._captured: list[bytes] | None = None
        self._frozen: tuple[Callable[[], tuple[int, int]], Callable[[], list[str]]] = (lambda: (0, 0), list)

    def include_frozen(self, totals: Callable[[], tuple[int, int]], sentences: Callable[[], list[str]]) -> None:
        """Include what `jit` has frozen, the number and bytes, and a sentence on each function."""
        self._frozen = totals, sentences

    def count(self, *, rewritten: bool, failed: bool, seconds: float) -> None:
        """Count a module."""
        with self._lock:
            counted = self._statistics
            self._statistics = replace(
                counted,
                modules=counted.modules + 1,
                rewritten=counted.rewritten + rewritten,
                failures=counted.failures + failed,
                seconds=counted.seconds + seconds,
            )

    @property
    def statistics(self) -> Statistics:
        """The current statistics."""
        done = measured_pipeline.tally
        frozen, size = self._frozen[0]()
        return replace(
            self._statistics,
            measured=done.measured,
            measuring_failures=done.failures,
            frozen=frozen,
            frozen_bytes=size,
        )

    def keep(self, report: Report) -> None:
        """Add a report."""
        at_exit.add(report)
        with self._lock:
            self._reports.append(report)
            for detailed_reports in self._detailed_reports:
                detailed_reports.append(report)

    @property
    def reports(self) -> list[Report]:
        """The latest reports, newest last."""
        with self._lock:
            return list(self._reports)

    @property
    def wants_details(self) -> bool:
        """Whether a `detailed` block is active."""
        return bool(self._detailed_reports)

    @contextlib.contextmanager
    def detailed(self) -> Generator[list[Report]]:
        """Reports have details inside the block; yields the list of its reports."""
        detailed_reports: list[Report] = []
        with self._lock:
            self._detailed_reports.append(detailed_reports)
        try:
            yield detailed_reports
        finally:
            with self._lock:
                self._detailed_reports = [other for other in self._detailed_reports if other is not detailed_reports]

    def fail(self, error: Exception) -> None:
        """Add a failure to the run report."""
        at_exit.add_failure(f"{type(error).__name__}: {error}")

    def write_at_exit(self) -> None:
        """Start the run report, which is written at exit, if the environment asks for it."""
        at_exit.begin(lambda: asdict(self.statistics) | {"frozen_arguments": self._frozen[1]()})

    @property
    def is_capturing(self) -> bool:
        """Whether a `captured` block is active."""
        return self._captured is not None

    def capture(self, serialized: bytes) -> bool:
        """Capture a module if a `captured` block is active; returns whether it is."""
        captured = self._captured
        if captured is not None:
            captured.append(serialized)
        return captured is not None

    @contextlib.contextmanager
    def captured(self) -> Generator[list[bytes]]:
        """Capture modules inside the block without dispatching them; yields their list."""
        with self._capturing:
            self._captured = modules = []
            try:
                yield modules
            finally:
                self._captured = None


record = Record()


def statistics() -> Statistics:
    """Statistics of the pass in this process so far."""
    return record.statistics


def reports() -> list[Report]:
    """Reports of the latest compiled modules, newest last."""
    return record.reports
