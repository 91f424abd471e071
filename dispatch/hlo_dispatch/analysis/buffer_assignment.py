"""Buffer assignment: offsets of intermediate values in one allocation, shared by values with disjoint live ranges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from hlo_dispatch.analysis.live_range import LiveRange

ALIGNMENT = 64
"""Bytes: a cache line's, and what XLA aligns its buffers to."""
NOTHING_REUSED: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True)
class BufferAssignment:
    """The offsets of all values in one allocation."""

    offsets: tuple[int, ...]
    """Offset of each value, in the order of the live ranges; multiples of `ALIGNMENT`."""
    bytes: int


def separate_buffers(sizes: Sequence[int]) -> BufferAssignment:
    """A buffer for each value, one after the other."""
    *offsets, end = itertools.accumulate(map(padded, sizes), initial=0)
    return BufferAssignment(tuple(offsets), end)


def assign_buffers(live_ranges: Sequence[LiveRange], reused: Mapping[int, int] = NOTHING_REUSED) -> BufferAssignment:
    """Assign offsets greedily: the largest values first, each at the lowest free offset.

    Args:
        reused: number of a value → number of an earlier value whose buffer it reuses in place: of the same size, and
            last read by the step that writes this one.
    """
    buffers: list[int] = []
    """Number of each value → number of the value that is the first in its buffer."""
    merged: dict[int, LiveRange] = {}
    for number, live_range in enumerate(live_ranges):
        if number in reused:
            buffers.append(buffers[reused[number]])
            merged[buffers[-1]].last = max(merged[buffers[-1]].last, live_range.last)
        else:
            buffers.append(number)
            merged[number] = replace(live_range)
    placed = _PlacedBuffers()
    for number in sorted(merged, key=lambda number: (-merged[number].bytes, number)):
        placed.add(number, merged[number])
    return BufferAssignment(tuple(placed.offsets[buffer] for buffer in buffers), placed.end)


class _PlacedBuffers:
    """The buffers that have an offset."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.end = 0
        self._live_ranges: dict[int, LiveRange] = {}
        self._live_at: dict[int, list[int]] = {}
        """Position → the buffers that are live there."""
        self._begin_at: dict[int, list[int]] = {}
        """Position → the buffers that are live from there on."""

    def add(self, number: int, live_range: LiveRange) -> None:
        """Place a buffer at the lowest offset at which no overlapping live range has its own."""
        lowest = 0
        for begin, size in sorted(self._occupied(live_range)):
            if lowest + live_range.bytes <= begin:
                break
            lowest = max(lowest, begin + size)
        self.offsets[number], self._live_ranges[number] = lowest, live_range
        self.end = max(self.end, lowest + padded(live_range.bytes))
        self._begin_at.setdefault(live_range.first, []).append(number)
        for position in range(live_range.first, live_range.last + 1):
            self._live_at.setdefault(position, []).append(number)

    def _occupied(self, live_range: LiveRange) -> Iterator[tuple[int, int]]:
        """(offset, size) of the buffers that must not be shared."""
        others = list(self._live_at.get(live_range.first, ()))
        for position in range(live_range.first + 1, live_range.last + 1):
            others += self._begin_at.get(position, ())
        for other in others:
            if (placed := self._live_ranges[other]).overlaps(live_range):
                yield self.offsets[other], padded(placed.bytes)


def padded(size: int) -> int:
    """The size rounded up to a multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT
