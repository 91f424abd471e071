"""Where values lie that exist for a while: one piece of memory, shared by those that do not exist at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line's, and what XLA aligns its buffers to."""


@dataclass(frozen=True)
class Life:
    """A value's."""

    bytes: int
    first: int
    """The step that writes it."""
    last: int
    """The last step that reads it."""
    over: int | None = None
    """The number of an earlier one whose place it takes: as large, and read for the last time by the step that writes
    this one."""


@dataclass(frozen=True)
class Arena:
    """The memory of them all."""

    offsets: tuple[int, ...]
    """Where each value begins, in the order in which they were given; multiples of `ALIGNMENT`."""
    bytes: int


def arranged(lives: Sequence[Life]) -> Arena:
    """Values in as little memory as the largest ones first, each at the lowest place that is free, need."""
    owners: list[int] = []
    for number, life in enumerate(lives):
        owners.append(number if life.over is None else owners[life.over])
    last = [life.last for life in lives]
    for number, owner in enumerate(owners):
        last[owner] = max(last[owner], lives[number].last)
    owned = [Life(life.bytes, life.first, last[number]) for number, life in enumerate(lives)]
    offsets, end = _placed(owned, [number for number, owner in enumerate(owners) if owner == number])
    return Arena(tuple(offsets[owner] for owner in owners), end)


def _placed(lives: Sequence[Life], numbers: Sequence[int]) -> tuple[list[int], int]:
    """Where those with these numbers lie, and where the last of them ends."""
    offsets = [0] * len(lives)
    placed: list[int] = []
    end = 0
    for number in sorted(numbers, key=lambda number: (-lives[number].bytes, number)):
        life = lives[number]
        beside = sorted(
            (offsets[other], padded(lives[other].bytes))
            for other in placed
            if lives[other].first <= life.last and life.first <= lives[other].last
        )
        offset = 0
        for begin, size in beside:
            if offset + life.bytes <= begin:
                break
            offset = max(offset, begin + size)
        offsets[number] = offset
        end = max(end, offset + padded(life.bytes))
        placed.append(number)
    return offsets, end


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
