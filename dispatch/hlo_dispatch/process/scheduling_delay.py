"""How long this process's threads waited for a processor, and what other work the processors had, as Linux counts."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

TASKS = Path("/proc/self/task")
STAT = Path("/proc/stat")
MOST_THREADS = 256
"""Of a process with more of them some are read: each is a descriptor, of which the host process needs the rest."""
LEAST_SLICE = 0.75e-3
"""Seconds that Linux's scheduler gives a process at least before another one has its turn."""
_LONGEST_LINE = 64


class RunDelay:
    """Seconds that this process's threads waited for a processor while they were ready to run.

    Each thread's count is a file that stays open: reading it takes a microsecond, opening it ten.
    """

    def __init__(self, tasks: Path = TASKS) -> None:
        """Threads that start later are not seen."""
        self._files: dict[int, int] = {}
        """Descriptor → the nanoseconds that the thread had run."""
        self._last: dict[int, tuple[int, int]] = {}
        """Descriptor → what was read last, which is all that a thread leaves that ends."""
        with contextlib.suppress(OSError):
            for thread in os.listdir(tasks)[:MOST_THREADS]:
                with contextlib.suppress(OSError):
                    descriptor = os.open(f"{tasks}/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                    self._files[descriptor] = -1
        for descriptor in list(self._files):
            self._files[descriptor] = self._counts(descriptor)[0]
        self._is_counted = bool(self._files)

    def forget_idle_threads(self) -> None:
        """Read no more of threads that did not run since the beginning."""
        for descriptor, ran in list(self._files.items()):
            if self._counts(descriptor)[0] == ran:
                self._drop(descriptor)

    def seconds(self) -> float:
        """Until now, of all threads together; of forced switches, each a slice, where the system counts no waiting."""
        if not self._is_counted:
            return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw * LEAST_SLICE
        return sum(self._counts(descriptor)[1] for descriptor in list(self._files)) * 1e-9

    def close(self) -> None:
        for descriptor in list(self._files):
            self._drop(descriptor)

    def _counts(self, descriptor: int) -> tuple[int, int]:
        """Nanoseconds (run, waited)."""
        try:
            ran, waited, *_ = os.pread(descriptor, _LONGEST_LINE, 0).split()
            self._last[descriptor] = int(ran), int(waited)
        except (OSError, ValueError):
            pass  # the thread has ended, or this system's file says something else
        return self._last.get(descriptor, (0, 0))

    def _drop(self, descriptor: int) -> None:
        del self._files[descriptor]
        self._last.pop(descriptor, None)
        os.close(descriptor)


@dataclass(frozen=True)
class OtherWork:
    """What others had of the processors that this process may use, until a moment; seconds of a processor."""

    busy: float
    """Other processes' time, with what the host gave to other machines; this includes what `stolen` is."""
    stolen: float
    """What the host gave to other machines."""


def other_work(stat: Path = STAT) -> OtherWork | None:
    """Until now, in steps of the system's clock tick; None where the system does not say."""
    try:
        lines = stat.read_bytes().splitlines()
        ours = {b"cpu%d" % number for number in os.sched_getaffinity(0)}
        counts = [[int(count) for count in line.split()[1:9]] for line in lines if line.split(None, 1)[0] in ours]
        tick = 1 / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    if not counts or any(len(each) < 8 for each in counts):
        return None
    stolen = sum(each[7] for each in counts) * tick
    # user, nice, system, interrupts; neither idle nor waiting for a disk.
    used = sum(sum(each[:3]) + sum(each[5:8]) for each in counts) * tick
    return OtherWork(used - time.process_time(), stolen)
