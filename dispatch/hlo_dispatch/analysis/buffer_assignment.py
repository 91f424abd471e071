"""Buffer assignment: offsets of intermediate values in one allocation, shared by values with disjoint live ranges."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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
    offsets: dict[int, int] = {}
    end = 0
    for number in sorted(merged, key=lambda number: (-merged[number].bytes, number)):
        offsets[number] = _lowest_free_offset(merged[number], offsets, merged)
        end = max(end, offsets[number] + padded(merged[number].bytes))
    return BufferAssignment(tuple(offsets[buffer] for buffer in buffers), end)


def _lowest_free_offset(live_range: LiveRange, offsets: Mapping[int, int], live_ranges: Mapping[int, LiveRange]) -> int:
    """The lowest offset at which no overlapping live range has its buffer."""
    occupied = sorted(
        (offset, padded(live_ranges[other].bytes))
        for other, offset in offsets.items()
        if live_ranges[other].overlaps(live_range)
    )
    lowest = 0
    for begin, size in occupied:
        if lowest + live_range.bytes <= begin:
            break
        lowest = max(lowest, begin + size)
    return lowest


def padded(size: int) -> int:
    """The size rounded up to a multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT
