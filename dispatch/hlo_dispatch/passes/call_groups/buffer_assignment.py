"""Buffer assignment: offsets of intermediate values in one allocation, shared by values with disjoint live ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line's, and what XLA aligns its buffers to."""


@dataclass(frozen=True)
class LiveRange:
    """Size and live range of one intermediate value."""

    bytes: int
    first: int
    """The step that writes it."""
    last: int
    """The last step that reads it."""
    reuses: int | None = None
    """Number of an earlier value whose buffer it reuses in place: of the same size, and last read by the step that
    writes this one."""


@dataclass(frozen=True)
class BufferAssignment:
    """The offsets of all values in one allocation."""

    offsets: tuple[int, ...]
    """Offset of each value, in the order of the live ranges; multiples of `ALIGNMENT`."""
    bytes: int


def assign_buffers(live_ranges: Sequence[LiveRange]) -> BufferAssignment:
    """Assign offsets greedily: the largest values first, each at the lowest free offset."""
    buffers: list[int] = []
    for number, live_range in enumerate(live_ranges):
        buffers.append(number if live_range.reuses is None else buffers[live_range.reuses])
    last = [live_range.last for live_range in live_ranges]
    for number, buffer in enumerate(buffers):
        last[buffer] = max(last[buffer], live_ranges[number].last)
    merged = [
        LiveRange(live_range.bytes, live_range.first, last[number]) for number, live_range in enumerate(live_ranges)
    ]
    offsets, end = _offsets(merged, [number for number, buffer in enumerate(buffers) if buffer == number])
    return BufferAssignment(tuple(offsets[buffer] for buffer in buffers), end)


def _offsets(live_ranges: Sequence[LiveRange], numbers: Sequence[int]) -> tuple[list[int], int]:
    """Offsets of the values with these numbers, and the end of the last one."""
    offsets = [0] * len(live_ranges)
    assigned: list[int] = []
    end = 0
    for number in sorted(numbers, key=lambda number: (-live_ranges[number].bytes, number)):
        live_range = live_ranges[number]
        overlapping = sorted(
            (offsets[other], padded(live_ranges[other].bytes))
            for other in assigned
            if live_ranges[other].first <= live_range.last and live_range.first <= live_ranges[other].last
        )
        offset = 0
        for begin, size in overlapping:
            if offset + live_range.bytes <= begin:
                break
            offset = max(offset, begin + size)
        offsets[number] = offset
        end = max(end, offset + padded(live_range.bytes))
        assigned.append(number)
    return offsets, end


def padded(size: int) -> int:
    """The size rounded up to a multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT
