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


@dataclass(frozen=True)
class Arena:
    """The memory of them all."""

    offsets: tuple[int, ...]
    """Where each value begins, in the order in which they were given; multiples of `ALIGNMENT`."""
    bytes: int


def arranged(lives: Sequence[Life]) -> Arena:
    """Values in as little memory as the largest ones first, each at the lowest place that is free, need."""
    offsets = [0] * len(lives)
    placed: list[int] = []
    end = 0
    for number in sorted(range(len(lives)), key=lambda number: (-lives[number].bytes, number)):
        life = lives[number]
        beside = sorted(
            (offsets[other], _rounded(lives[other].bytes))
            for other in placed
            if lives[other].first <= life.last and life.first <= lives[other].last
        )
        offset = 0
        for begin, size in beside:
            if offset + life.bytes <= begin:
                break
            offset = max(offset, begin + size)
        offsets[number] = offset
        end = max(end, offset + _rounded(life.bytes))
        placed.append(number)
    return Arena(tuple(offsets), end)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
