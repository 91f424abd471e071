"""Memory between runs, where the user asks for it: the C library keeps what a program gave back.

For each run XLA allocates what a program needs besides its operands and frees it afterwards. glibc returns blocks
of 32 MB and more to the operating system each time, and smaller ones often; the next run then writes to pages that
the system clears one by one as they are touched. A network that became ten times as fast notices: of MobileNetV2
on a batch of eight that was a fifth of the time in bf16 and a third in f32.

But the setting is the whole process's: whatever else in it frees memory keeps it, too (twenty arrays of 48 MB that
were dropped left 1 GB), and glibc has no way back to the rule that it began with. So it is the user's to choose. The
memory in question is XLA's own, which no memory of ours could stand in for.
"""

from __future__ import annotations

import ctypes
import logging
import platform
import threading

from hlo_dispatch.errors import PolicyError
from hlo_dispatch.process.environment_switches import switch

KEEP_VARIABLE = "HLO_DISPATCH_KEEP_MEMORY"
LARGEST_KEPT = 64 << 20
"""Bytes of the largest block that comes from a heap: twice the most that glibc's own rule reaches. The heaps of all
threads but the first are no larger, so that more would not help there."""
MOST_FREE = 128 << 20
"""Bytes that may be free at the end of a heap before they are returned."""
_RULES_LARGEST, _RULES_FREE = 32 << 20, 64 << 20
"""Where glibc's own rule arrives in a program that has freed large blocks, which every program with arrays does."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of glibc's mallopt(3)."""
_logger = logging.getLogger("hlo_dispatch")
_lock = threading.Lock()
_kept = False


def keep_memory(policy: str) -> bool:
    """Ask the C library to keep freed memory if the environment says so, and no longer otherwise; says whether it does.

    With the policy "never" it is not asked. Where it refuses, a warning says so.

    Raises:
        PolicyError: the variable is neither 0 nor 1.
    """
    global _kept
    wanted = switch(KEEP_VARIABLE, PolicyError, zero="malloc stays as it is", one="it keeps what is freed")
    if not wanted or policy == "never":
        release_memory()
        return False
    with _lock:
        if not _kept:
            _kept = _set(LARGEST_KEPT, MOST_FREE)
            if not _kept:
                _logger.warning(
                    "%s=1 has no effect: this C library (%s) does not let its malloc keep blocks of %d MB; "
                    "glibc does from 2.35 on",
                    *(KEEP_VARIABLE, " ".join(platform.libc_ver()).strip() or "not glibc", LARGEST_KEPT >> 20),
                )
        return _kept


def release_memory() -> None:
    """Undo `keep_memory()` as far as glibc can: what is free is returned, and about as much as before from now on."""
    global _kept
    with _lock:
        if not _kept:
            return
        _set(_RULES_LARGEST, _RULES_FREE)
        ctypes.CDLL(None).malloc_trim(0)
        _kept = False


def return_free_memory() -> None:
    """Have the C library return what it holds free to the operating system, once, unless the user has it kept.

    Compiling leaves some ten megabytes in pieces that large arrays do not fit into. It takes milliseconds, and changes
    no setting.
    """
    with _lock:
        # Other C libraries than glibc have no such function.
        trim = None if _kept else getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _set(largest: int, free: int) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, largest) and mallopt(_TRIM_THRESHOLD, free))
