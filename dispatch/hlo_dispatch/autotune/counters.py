"""Counters of what tuning did in one process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TuningCounters:
    """What a tuner did so far."""

    measured: int = 0
    found_in_store: int = 0
    """Measured meanwhile by another process."""
    unmeasurable: int = 0
    unclear: int = 0
    """Too much else was going on to tell."""
    failures: int = 0
    unreached: int = 0
    """Regions that the budget did not reach."""
    seconds: float = 0.0
