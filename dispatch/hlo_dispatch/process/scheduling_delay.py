"""Scheduling delay: time that this process's threads waited for a processor, and other processes' CPU time."""

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
"""Maximum threads that are read: each needs a descriptor, and the host process needs descriptors, too."""
LEAST_SLICE = 0.75e-3
"""Minimum time slice of Linux's scheduler, in seconds."""
_LONGEST_LINE = 64


class RunDelay:
    """Run delay: seconds that this process's threads were runnable and waited for a processor.

    Each thread's counter is a file that stays open: reading it takes a microsecond, opening it ten.
    """

    def __init__(self, tasks: Path = TASKS) -> None:
        """Open the counters of the current threads; later threads do not count."""
        self._files: dict[int, int] = {}
        """Descriptor → the thread's nanoseconds of running at the start."""
        self._last: dict[int, tuple[int, int]] = {}
        """Descriptor → latest values, which remain when a thread ends."""
        with contextlib.suppress(OSError):
            for thread in os.listdir(tasks)[:MOST_THREADS]:
                with contextlib.suppress(OSError):
                    descriptor = os.open(f"{tasks}/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                    self._files[descriptor] = -1
        for descriptor in list(self._files):
            self._files[descriptor] = self._counts(descriptor)[0]
        self._is_counted = bool(self._files)

    def forget_idle_threads(self) -> None:
        """Close the counters of threads that have not run since the start."""
        for descriptor, ran in list(self._files.items()):
            if self._counts(descriptor)[0] == ran:
                self._drop(descriptor)

    def seconds(self) -> float:
        """Total seconds of waiting; without counters, involuntary context switches times the minimum slice."""
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
    """CPU seconds of other work on the processors of this process, up to a moment."""

    busy: float
    """Time of other processes and of other virtual machines; includes `stolen`."""
    stolen: float
    """Time of other virtual machines (steal time)."""


def other_work(stat: Path = STAT) -> OtherWork | None:
    """Other work so far, in clock ticks; None where the system does not count it."""
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
