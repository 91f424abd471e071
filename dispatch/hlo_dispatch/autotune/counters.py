"""Tuning counters of a process."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class TuningCounters:
    """Counters of tuning: regions by outcome, and seconds."""

    measured: int = 0
    unmeasurable: int = 0
    unclear: int = 0
    """Noise hid which is faster."""
    failures: int = 0
    unreached: set[str] = field(default_factory=set[str])
    """Digests of what the budget did not reach."""
    seconds: float = 0.0
