"""Disturbance meter that reports a quiet machine, so that decisions by times are tested on any machine."""

from __future__ import annotations

from collections.abc import Sequence


class QuietMeter:
    """Every turn counts."""

    def ready(self) -> None: ...

    def look(self, turn: int, *, now: bool = False) -> None: ...

    def waited(self) -> float:
        return 0.0

    def undisturbed(self, waits: Sequence[Sequence[float]]) -> list[bool]:
        return [True] * min(len(each) for each in waits)

    def close(self) -> None: ...
