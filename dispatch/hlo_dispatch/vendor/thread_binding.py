"""Thread binding: whether each of oneDNN's threads is bound to a processor (see kernels/common/bound_threads.h)."""

from __future__ import annotations

import os

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.environment_switches import switch

BIND_VARIABLE = "HLO_DISPATCH_BIND_THREADS"
PROCESSORS_MEASURED = 2
"""Where binding was measured: without it about one process of three ran ViT in bf16 10 % slower, with it none. With
more processors a bound thread is more likely to find another program's thread where it has to run."""


def binds_threads() -> bool:
    """The environment variable's setting, or the default that was measured to be better.

    Raises:
        LibraryError: the variable is neither 0 nor 1.
    """
    setting = switch(BIND_VARIABLE, LibraryError, zero="the system places them", one="a processor for each")
    # The affinity of the first thread is the process's; the calling thread may have fewer processors.
    return len(os.sched_getaffinity(os.getpid())) == PROCESSORS_MEASURED if setting is None else setting
