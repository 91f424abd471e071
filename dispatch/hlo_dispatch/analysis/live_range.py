"""Live range of a value: its size, and from where to where in an instruction order it needs a buffer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class LiveRange:
    """Size and live range of an array, in positions of an instruction order."""

    bytes: int
    first: int
    """Where it is written."""
    last: int
    """Where it is last read."""
    may_overwrite: bool = False
    """Whether the instruction that writes it may overwrite an operand that it reads last: a fusion may, a call may
    not."""

    def overlaps(self, other: LiveRange) -> bool:
        """Whether the two need separate buffers."""
        earlier, later = (self, other) if self.first <= other.first else (other, self)
        return earlier.last > later.first or (earlier.last == later.first and not later.may_overwrite)
