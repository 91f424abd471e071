"""Large pages: moves weights into transparent huge pages, which reduces TLB misses.

A GEMV reads all of its weights once. With pages of 4 KB the processor translates an address for each 64 cache lines,
and its prefetchers stop at the end of a page. Linux collapses pages on request (MADV_COLLAPSE, from 6.1 on) or in the
background (MADV_HUGEPAGE). Contents and addresses do not change, and memory use does not grow, since only whole large
pages are requested. Where the administrator has set "never", nothing is requested.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("/sys/kernel/mm/transparent_hugepage")
_NEVER = "[never]"
_HUGEPAGE, _COLLAPSE = 14, 25
"""Linux's numbers of the advice values."""
_SAME_BLOCK = 4096
"""Maximum gap in bytes between adjacent arrays: malloc's block headers, and alignment."""


def move_to_large_pages(pieces: Iterable[tuple[int, int]]) -> int:
    """Request large pages and wait for the collapse: a second or two for a gigabyte.

    Args:
        pieces: address and bytes of each array; they must stay allocated during the call.

    Returns:
        Bytes that were certainly moved to large pages.
    """
    size = _page_bytes(FOLDER)
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if not size or advise is None:
        return 0
    moved = 0
    for begin, end in _whole_pages(pieces, size):
        address, length = ctypes.c_void_p(begin), ctypes.c_size_t(end - begin)
        # On failure (an older kernel, fragmented memory) the memory stays in small pages.
        advise(address, length, _HUGEPAGE)
        if advise(address, length, _COLLAPSE) == 0:
            moved += end - begin
    return moved


def _page_bytes(folder: Path) -> int:
    """Bytes of a large page; 0 where there are none, or they are disabled."""
    try:
        if _NEVER in (folder / "enabled").read_text():
            return 0
        return int((folder / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0


def _whole_pages(pieces: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """(begin, end) of the whole large pages inside of adjacent arrays."""
    joined: list[list[int]] = []
    for begin, count in sorted(pieces):
        if joined and begin - joined[-1][1] <= _SAME_BLOCK:
            joined[-1][1] = max(joined[-1][1], begin + count)
        else:
            joined.append([begin, begin + count])
    inside = ((-(-begin // size) * size, end // size * size) for begin, end in joined)
    return [(begin, end) for begin, end in inside if begin < end]
