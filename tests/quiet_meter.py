"""Disturbance meter that reports a quiet machine, so that decisions by times are tested on any machine."""

from __future__ import annotations

import math
from collections.abc import Iterable


class QuietMeter:
    """Every sample counts."""

    def ready(self) -> None: ...

    def look(self, turn: int, *, now: bool = False) -> None: ...

    def waited(self) -> float:
        return 0.0

    def tolerated(self, waits: Iterable[float]) -> float:
        return math.inf

    def is_undisturbed(self, turn: int) -> bool:
        return True

    def is_busy(self) -> bool:
        return False

    def close(self) -> None: ...
