"""Whether oneDNN's threads are kept on a processor each (kernels/common/bound_threads.h says why)."""

from __future__ import annotations

import os

from .errors import LibraryError

BIND_VARIABLE = "HLO_DISPATCH_BIND_THREADS"
PROCESSORS_MEASURED = 2
"""Where binding was measured: without it about one process of three ran ViT in bf16 10 % slower, with it none. With
more processors a bound thread is more likely to find another program's thread where it has to run."""


def binds_threads() -> bool:
    """What the environment asks for, or else what was measured to be better.

    Raises:
        LibraryError: the variable is neither 0 nor 1.
    """
    wanted = os.environ.get(BIND_VARIABLE, "")
    if wanted not in ("", "0", "1"):
        raise LibraryError(f"{BIND_VARIABLE} is {wanted!r}; set it to 1 (a processor for each), to 0, or unset it")
    return wanted == "1" if wanted else len(os.sched_getaffinity(0)) == PROCESSORS_MEASURED
