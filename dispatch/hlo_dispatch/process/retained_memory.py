"""Retained memory: an optional malloc setting that keeps freed memory in the process between runs.

For each run XLA allocates a program's temporary buffers and frees them afterwards. glibc returns blocks of 32 MB and
more to the operating system each time, and smaller ones often; the next run then has a page fault for each page. In a
fast network that matters: for MobileNetV2 on a batch of eight it was a fifth of the time in bf16 and a third in f32.

But the setting applies to the whole process: other freed memory is kept as well (twenty dropped arrays of 48 MB left
1 GB), and glibc cannot restore its initial dynamic rule. So the user has to choose it. The memory is XLA's own; no
allocation of ours could replace it.
"""

from __future__ import annotations

import ctypes
import logging
import platform

from hlo_dispatch.errors import PolicyError
from hlo_dispatch.process.environment_switches import switch
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

KEEP_VARIABLE = "HLO_DISPATCH_KEEP_MEMORY"
LARGEST_KEPT = 64 << 20
"""Bytes of the largest block from a heap: twice the maximum of glibc's dynamic rule. The heaps of all threads but the
first are no larger, so a larger value would not help there."""
MOST_FREE = 128 << 20
"""Bytes that may be free at the end of a heap before they are returned."""
_RULES_LARGEST, _RULES_FREE = 32 << 20, 64 << 20
"""Values of glibc's dynamic rule after a program has freed large blocks, as every program with arrays does."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of glibc's mallopt(3)."""
_logger = logging.getLogger("hlo_dispatch")
_lock = ForkSafeLock()
_kept = False


def keep_memory(policy: str) -> bool:
    """Apply the environment's setting to malloc, except with the policy "never"; returns whether memory is retained.

    A warning says where the C library refuses.

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
    """Undo `keep_memory()` as far as glibc can: returns free memory now, and about as much as before from now on."""
    global _kept
    with _lock:
        if not _kept:
            return
        _set(_RULES_LARGEST, _RULES_FREE)
        ctypes.CDLL(None).malloc_trim(0)
        _kept = False


def return_free_memory() -> None:
    """Return malloc's free memory to the operating system once, unless the user has it retained.

    A compilation leaves tens of megabytes in fragments that do not fit large arrays. This takes milliseconds, and
    changes no setting.
    """
    with _lock:
        # Other C libraries than glibc have no such function.
        trim = None if _kept else getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _set(largest: int, free: int) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, largest) and mallopt(_TRIM_THRESHOLD, free))
