"""Memory budget of automatic freezing: bytes that preprocessed weights may take besides the weights themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable
from pathlib import Path

from hlo_dispatch.errors import PolicyError

MEMORY_VARIABLE = "HLO_DISPATCH_FREEZE_MEMORY"
_SHARE = 4
"""A quarter of the available memory, where the variable says nothing."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def configured_bytes() -> int | None:
    """The bytes that the environment allows; None: it says nothing.

    Raises:
        PolicyError: the variable is no size.
    """
    value = os.environ.get(MEMORY_VARIABLE, "").strip()
    if not value:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", value, re.IGNORECASE)
    if match is None:
        raise PolicyError(f"{MEMORY_VARIABLE} is {value!r}; set it to a size such as 0, 500M or 2G, or unset it")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes that the machine has available, or this process's control group, if that leaves less.

    Args:
        root: of the file system that /proc and /sys are in.
    """
    lines = (root / "proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    machine = int(fields["MemAvailable"].split()[0]) << 10
    return max(0, min([machine, *_left_in_control_groups(root)]))


class MemoryBudget:
    """Bytes by owner. Takes no lock: callbacks of dying arrays release, whatever thread they interrupt."""

    def __init__(self, configured: int | None, available: Callable[[], int] = available_bytes) -> None:
        self._configured, self._available = configured, available
        self._bytes: dict[Hashable, int] = {}

    @property
    def bytes(self) -> int:
        """Bytes of all owners."""
        return sum(list(self._bytes.values()))

    def reserve(self, owner: Hashable, bytes: int) -> str:
        """Reserve bytes in place of the owner's former ones; returns why that is refused, or an empty string."""
        others = self.bytes - self._bytes.get(owner, 0)
        if self._configured is None:
            limit, source = self._available() // _SHARE, "a quarter of the memory that is available"
        else:
            limit, source = self._configured - others, f"what {MEMORY_VARIABLE} leaves"
        if bytes > limit:
            self.release(owner)
            return f"it would take {bytes:,} bytes more, over the {max(limit, 0):,} of {source}"
        self._bytes[owner] = bytes
        return ""

    def release(self, owner: Hashable) -> None:
        """Release the owner's bytes."""
        self._bytes.pop(owner, None)


def _left_in_control_groups(root: Path) -> list[int]:
    """Bytes that each control group above this process leaves."""
    left: list[int] = []
    try:
        entries = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return left
    for _, controllers, path in (entry.split(":", 2) for entry in entries if entry.count(":") >= 2):
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        # In a container the path may be the host's: its own group is mounted at the root.
        relative = Path(path.lstrip("/"))
        for folder in {mount / part for part in (relative, *relative.parents)} | {mount}:
            left += _left_in(folder, *names)
    return left


def _left_in(folder: Path, limit: str, usage: str, reclaimable: str) -> list[int]:
    try:
        most = (folder / limit).read_text().strip()
        if not most.isdigit():
            return []  # "max"
        fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return [int(most) - int((folder / usage).read_text()) + int(fields.get(reclaimable, 0))]
    except (OSError, ValueError):
        return []
