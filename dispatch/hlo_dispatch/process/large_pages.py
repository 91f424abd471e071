"""Memory that is read again and again, moved into large pages by the operating system: fewer addresses to look up.

A product of one row reads all of its weights once, and in pages of 4 KB the processor looks up an address for each 64
lines, and its prefetchers end where a page does. Linux moves what it is asked to (MADV_COLLAPSE, from 6.1 on), or does
so by and by (MADV_HUGEPAGE); contents and addresses stay as they are, and as much memory is used as before, since only
pages that are whole are asked for. Whoever runs the machine may have said "never"; then nothing is asked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("/sys/kernel/mm/transparent_hugepage")
_NEVER = "[never]"
_HUGEPAGE, _COLLAPSE = 14, 25
"""Linux's numbers of the advices."""
_SAME_BLOCK = 4096
"""Bytes between two arrays of which one lies behind the other: malloc's own words about a block, and alignment."""


def move_to_large_pages(pieces: Iterable[tuple[int, int]]) -> int:
    """Ask for large pages, and wait until what lies in whole ones is moved: a second or two for a gigabyte.

    Args:
        pieces: address and bytes of each, which stay allocated while this runs.

    Returns:
        the bytes that lie in large pages now for certain.
    """
    size = _page_bytes(FOLDER)
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if not size or advise is None:
        return 0
    moved = 0
    for begin, end in _whole_pages(pieces, size):
        address, length = ctypes.c_void_p(begin), ctypes.c_size_t(end - begin)
        # What is refused (an older system, no memory that lies together) stays in small pages, and works.
        advise(address, length, _HUGEPAGE)
        if advise(address, length, _COLLAPSE) == 0:
            moved += end - begin
    return moved


def _page_bytes(folder: Path) -> int:
    """Of a large page; 0 where there are none, or nobody is to have them."""
    try:
        if _NEVER in (folder / "enabled").read_text():
            return 0
        return int((folder / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0


def _whole_pages(pieces: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Begin and end of what lies in one piece, where that holds whole pages."""
    joined: list[list[int]] = []
    for begin, count in sorted(pieces):
        if joined and begin - joined[-1][1] <= _SAME_BLOCK:
            joined[-1][1] = max(joined[-1][1], begin + count)
        else:
            joined.append([begin, begin + count])
    inside = ((-(-begin // size) * size, end // size * size) for begin, end in joined)
    return [(begin, end) for begin, end in inside if begin < end]
