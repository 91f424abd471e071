"""One line on a terminal for a compile that takes longer because it measures; nothing in a log or a pipe."""

from __future__ import annotations

import math
import sys
import time

PATIENCE = 0.7
"""Seconds before anything is said."""


class Line:
    """Says what is being measured; call it with what `Step` is told."""

    def __init__(self) -> None:
        self._begun = 0.0
        self._shown = False

    def __call__(self, what: str, done: int, count: int, left: float) -> None:
        """Show the step, or clear the line where `what` is empty."""
        if not what:
            self._clear()
            return
        now = time.perf_counter()
        if not done:
            self._begun = now
        if sys.stderr is None or not sys.stderr.isatty() or now - self._begun < PATIENCE:
            return
        limit = f"; at most {left:.0f} s more" if math.isfinite(left) else ""
        subject = f"region {done + 1} of {count}" if count else what
        text = f"hlo-dispatch: measuring {subject}, once on this machine{limit}"
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()
        self._shown = True

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False
