"""What the pass did in this process: counts, the latest reports, and what somebody is waiting to be shown."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace

from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.jax_plugin import at_exit
from hlo_dispatch.report import Report

_KEPT_REPORTS = 64


@dataclass(frozen=True)
class Statistics:
    """What the pass did in this process."""

    modules: int = 0
    """Modules that were looked at."""
    rewritten: int = 0
    """Modules in which at least one region was dispatched."""
    failures: int = 0
    """Modules where something of ours failed: stock XLA was used instead, or constants are prepared in each call."""
    seconds: float = 0.0
    """Time spent in the pass, measuring included."""
    measured: int = 0
    """Regions that were measured."""
    measuring_failures: int = 0
    """Regions whose measuring failed: the heuristic decided."""


class Record:
    """The counts and reports of this process, behind one lock that is never held while anything else is called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._capturing = threading.Lock()
        self._statistics = Statistics()
        self._reports: deque[Report] = deque(maxlen=_KEPT_REPORTS)
        self._listening: list[list[Report]] = []
        self._captured: list[bytes] | None = None

    def count(self, *, rewritten: bool, failed: bool, seconds: float) -> None:
        """One more module was looked at."""
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
        """The counts as they are now."""
        done = measured_pipeline.tally
        return replace(self._statistics, measured=done.measured, measuring_failures=done.failures)

    def keep(self, report: Report) -> None:
        """One more report."""
        at_exit.add(report)
        with self._lock:
            self._reports.append(report)
            for heard in self._listening:
                heard.append(report)

    @property
    def reports(self) -> list[Report]:
        """The latest, newest last."""
        with self._lock:
            return list(self._reports)

    @property
    def wants_details(self) -> bool:
        """Whether somebody listens, who wants reports to have details."""
        return bool(self._listening)

    @contextlib.contextmanager
    def detailed(self) -> Generator[list[Report]]:
        """Reports have details inside the block; gives a list that those kept meanwhile are added to."""
        heard: list[Report] = []
        with self._lock:
            self._listening.append(heard)
        try:
            yield heard
        finally:
            with self._lock:
                self._listening = [other for other in self._listening if other is not heard]

    def fail(self, error: Exception) -> None:
        """Nothing became of a module, for this reason."""
        at_exit.add_failure(f"{type(error).__name__}: {error}")

    def write_at_exit(self) -> None:
        """Write everything that is kept from here on when the process ends, where the environment asks for it."""
        at_exit.begin(lambda: asdict(self.statistics))

    @property
    def is_capturing(self) -> bool:
        """Whether somebody wants modules as XLA made them."""
        return self._captured is not None

    def capture(self, serialized: bytes) -> bool:
        """Whether somebody wants the module as XLA made it; it is theirs then."""
        captured = self._captured
        if captured is not None:
            captured.append(serialized)
        return captured is not None

    @contextlib.contextmanager
    def captured(self) -> Generator[list[bytes]]:
        """Modules are left alone inside the block; gives a list that each is added to."""
        with self._capturing:
            self._captured = modules = []
            try:
                yield modules
            finally:
                self._captured = None


record = Record()


def statistics() -> Statistics:
    """What the pass did in this process so far."""
    return record.statistics


def reports() -> list[Report]:
    """The reports of the modules compiled most recently, newest last."""
    return record.reports
