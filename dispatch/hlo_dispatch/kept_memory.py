"""Memory between runs: the C library keeps what a program gave back, where it would ask for fresh pages again.

For each run XLA allocates what a program needs besides its operands and frees it afterwards. glibc returns blocks
of 32 MB and more to the operating system each time, and smaller ones often; the next run then writes to pages that
the system clears one by one as they are touched. A network that became ten times as fast notices: of MobileNetV2
on a batch of eight that was a fifth of the time in bf16 and a third in f32.
"""

from __future__ import annotations

import ctypes
import os

from .errors import PolicyError
from .switches import switch

KEEP_VARIABLE = "HLO_DISPATCH_KEEP_MEMORY"
LARGEST_KEPT = 64 << 20
"""Bytes of the largest block that comes from a heap: twice the most that glibc's own rule reaches. The heaps of all
threads but the first are no larger, so that more would not help there."""
MOST_FREE = 128 << 20
"""Bytes that may be free at the end of a heap before they are returned."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of glibc's mallopt(3)."""
_USERS_OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_memory() -> bool:
    """Ask the C library to keep freed memory, unless the environment says otherwise; says whether it does.

    Who set glibc's own variables has decided already, and other C libraries have no such setting.

    Raises:
        PolicyError: the variable is neither 0 nor 1.
    """
    wanted = switch(KEEP_VARIABLE, PolicyError, zero="malloc stays as it is", one="it keeps what is freed")
    decided = any(name in os.environ for name in _USERS_OWN) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if wanted is False or (decided and not wanted):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_KEPT) and mallopt(_TRIM_THRESHOLD, MOST_FREE))
