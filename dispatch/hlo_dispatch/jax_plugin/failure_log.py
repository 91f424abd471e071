"""Failure log: logs a process's first failure of the pass, with the module in a file; `statistics()` counts all."""

from __future__ import annotations

import logging
import os
import tempfile

from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

_logger = logging.getLogger("hlo_dispatch")


class FailureLog:
    """Log of failures, of which the first one is written."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._has_warned = False

    def warn(self, what: str, serialized: bytes, command: str) -> None:
        """Log the first failure, with the module's file and a command that reproduces it."""
        with self._lock:
            if self._has_warned:
                return
            self._has_warned = True
        try:
            handle, path = tempfile.mkstemp(prefix="hlo_dispatch_failed_", suffix=".pb")
            with os.fdopen(handle, "wb") as file:
                file.write(serialized)
        except OSError as problem:
            path = f"(could not be kept: {problem})"
        _logger.warning(
            "hlo-dispatch %s. The module is in %s; `hlo-dispatch %s` on it shows the failure. "
            "Further failures are only counted in statistics().",
            what,
            path,
            command,
        )
