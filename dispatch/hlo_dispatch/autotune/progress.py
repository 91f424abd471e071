"""Progress display of a compile that measures: nothing for the first second, then a bar on a terminal, or one line.

The terminal belongs to the user's program, which may draw bars of its own on any thread. So the cursor never moves:
the bar is one write after the cursor's position, which restores the cursor, and at the end the rest of the line is
erased. No line starts or scrolls, and bars of rich or tqdm stay intact.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import threading
import time

from hlo_dispatch.errors import PolicyError
from hlo_dispatch.process.environment_switches import switch
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

VARIABLE = "HLO_DISPATCH_PROGRESS"
PATIENCE = 1.0
"""Seconds of measuring before the display starts."""
_EVERY = 0.5
"""Seconds between two redraws, which disturb measurements as little as possible."""
_LONGEST_WAIT = 1.0
_LONGEST_NAME = 40
_BAR_WIDTH = 20
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_ERASE = "\x1b[K"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
# Two threads may measure two modules alternately.
_drawing = ForkSafeLock()


class ProgressLine:
    """Progress line of one module; a `TuningProgress`."""

    def __init__(self, module: str = "") -> None:
        self._module = module[:_LONGEST_NAME]
        self._is_enabled = is_enabled()
        self._begun: float | None = None
        self._has_said = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._now = ("", 0, 0)
        """(current region, regions done, number of regions)."""
        self._end = math.inf

    def __call__(self, what: str, done: int, count: int, left: float) -> None:
        """Set the current step; an empty `what` ends the display for now."""
        if not self._is_enabled:
            return
        if not what:
            self._stop()
            return
        now = time.monotonic()
        is_first = not self._now[0]
        self._now, self._end = (what, done, count), now + left
        if self._begun is None:
            self._begun = now
        if is_first:
            self._stopped = threading.Event()
            # No thread can start during interpreter shutdown.
            with contextlib.suppress(RuntimeError):
                self._thread = threading.Thread(target=self._redraw, args=(self._stopped,), daemon=True)
                self._thread.start()

    def _stop(self) -> None:
        self._stopped.set()
        self._now = ("", 0, 0)
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(timeout=_LONGEST_WAIT)  # the program's next output comes after erasing
        self._thread = None

    def _redraw(self, stopped: threading.Event) -> None:
        """Thread that redraws the display: one step may take long."""
        assert self._begun is not None
        if stopped.wait(max(0.0, self._begun + PATIENCE - time.monotonic())):
            return
        if not is_terminal():
            self._write_once()
            return
        try:
            while not stopped.is_set():
                _write(f"{_SAVE}{_NO_WRAP}{_ERASE}{self._rendered()}{_WRAP}{_RESTORE}")
                stopped.wait(_EVERY)
        finally:
            _write(_ERASE)

    def _write_once(self) -> None:
        if self._has_said:
            return
        self._has_said = True
        _, _, count = self._now
        whole = f" {self._module}" if self._module else " a module"
        what = f" {count} region{'' if count == 1 else 's'} of{whole}" if count else whole
        left = self._end - time.monotonic()
        limit = f", at most {max(1, math.ceil(left))} s" if math.isfinite(left) else ""
        _write(f"hlo-dispatch: measuring{what}{limit}; {VARIABLE}=0 silences this\n")

    def _rendered(self) -> str:
        # Importing it takes longer than most compiles that measure nothing.
        from rich.console import Console
        from rich.progress_bar import ProgressBar

        _, done, count = self._now
        console = Console(file=sys.stderr, width=shutil.get_terminal_size().columns, legacy_windows=False)
        with console.capture() as bar:
            console.print(ProgressBar(total=count or None, completed=done, width=_BAR_WIDTH, pulse=not count), end="")
        left = self._end - time.monotonic()
        parts = [f"{done} of {count} regions" if count else "the whole program"]
        if math.isfinite(left):
            parts.append(f"{max(0.0, left):.0f} s left")
        return f"hlo-dispatch: measuring {self._module} {bar.get().rstrip()} {', '.join(parts)}"


def is_enabled() -> bool:
    """Whether the display is enabled; an invalid variable does not disable it."""
    try:
        return switch(VARIABLE, PolicyError, "nothing is said", "slow compiles say that they measure") is not False
    except PolicyError:
        return True


def is_terminal() -> bool:
    """Whether standard error is a terminal and was not replaced."""
    stream = sys.stderr
    # The replacement of rich or tqdm prints whole lines above their bars, and gets one.
    return stream is not None and stream is sys.__stderr__ and stream.isatty()


def _write(text: str) -> None:
    # The program may have closed standard error.
    with _drawing, contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()
